"""Labels, splits, groups and levels of the columns people write, and bases of all data sets."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core.contracts import Annotations, BoolArray, IntArray, Progress
from unseen.core.names import few
from unseen.data.images.item_digests import row_digests, row_ids

Column = Sequence[Any] | NDArray[Any]

HUB = "hf:"  # before the name of a data set of Hugging Face
INCOMPLETE = "incomplete"  # in `describe()`: what a known data set lacks, in a sentence
MIN_CLASSES = 4  # two to train on, one to validate, one to test
PARTS = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val"), "val")
_TRUE, _FALSE = {"1", "1.0", "true", "yes"}, {"", "0", "0.0", "false", "no", "nan", "none"}
_NAMED = 3  # examples in a message
SEPARATOR = "|"  # between the labels of a set


@dataclass(frozen=True)
class Columns:
    """One entry per item in each column; None where the source has no such column."""

    labels: Column
    split: Column | None = None  # train, test, and perhaps validation
    query: Column | None = None
    gallery: Column | None = None
    groups: Column | None = None
    more: Mapping[str, Column] | None = None  # further labels by name
    levels: Sequence[str] = ()  # which of them form a hierarchy, the coarsest first
    label_sets: Column | None = None  # several labels of an item, separated by |

    def of(self, rows: IntArray) -> "Columns":
        """The same columns for some items."""

        def some(column: Column | None) -> Column | None:
            return None if column is None else np.asarray(column)[rows]

        return Columns(
            np.asarray(self.labels)[rows],
            split=some(self.split),
            query=some(self.query),
            gallery=some(self.gallery),
            groups=some(self.groups),
            more={name: np.asarray(column)[rows] for name, column in (self.more or {}).items()},
            levels=self.levels,
            label_sets=some(self.label_sets),
        )


@dataclass(frozen=True)
class Described:
    """Columns in the terms of `contracts.Dataset`."""

    labels: IntArray
    label_names: list[str]
    test_classes: IntArray | None
    annotations: Annotations
    group_names: Sequence[str] = ()  # what a group is called, where there are groups


def described(columns: Columns, source: str) -> Described:
    """`source` names the file in messages."""
    labels, names = coded(columns.labels)
    if len(names) < MIN_CLASSES:
        raise ValueError(
            f"{source} has {len(names)} classes ({', '.join(names)}); at least {MIN_CLASSES} are "
            "needed to train and test on different ones"
        )
    test = validation = None
    if columns.split is not None:
        test, validation = _official(labels, names, columns.split, source)
    groups: IntArray | None = None
    group_names: list[str] = []
    if columns.groups is not None:
        groups, group_names = coded(columns.groups)
        nobody = [c for c, name in enumerate(group_names) if name.lower() in ("", "nan", "-1")]
        groups[np.isin(groups, nobody)] = -1
    more = {name: coded(values) for name, values in (columns.more or {}).items()}
    sets, set_names = (None, []) if columns.label_sets is None else coded_sets(columns.label_sets)
    annotations = Annotations(
        validation_classes=validation,
        query=None if columns.query is None else flags(columns.query, "query", source),
        gallery=None if columns.gallery is None else flags(columns.gallery, "gallery", source),
        ignore_groups=groups,
        labels={name: codes for name, (codes, _) in more.items()},
        label_names={name: values for name, (_, values) in more.items()},
        levels=tuple(columns.levels),
        label_sets=sets,
        set_names=set_names,
    )
    return Described(labels, names, test, annotations, group_names)


def coded(values: Column) -> tuple[IntArray, list[str]]:
    """Labels 0..C-1 in the order of the values, and the values as text; numbers, also written
    ones, stand in the order of numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "iub":
        words = array.astype(str)
        different = np.unique(words)
        array = words.astype(np.int64) if all(map(_is_number, different.tolist())) else words
    result, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), [str(value) for value in result.tolist()]


def class_labels(values: Any) -> NDArray[Any]:  # [n]
    """Labels as people have them as integers or words: whole floats and one-hot rows [n, C] too."""
    if values is None:
        raise ValueError("labels are missing: the class of each item, as in (features, labels)")
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    is_one_hot = array.ndim == 2 and array.dtype.kind in "iufb"
    if is_one_hot and np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all():
        array = array.argmax(axis=1)
    if array.ndim != 1:
        raise ValueError(
            f"labels must name one class for each item, got {array.dtype} of shape "
            f"{list(array.shape)}; several of an item are a column label_sets of a table"
        )
    if array.dtype.kind not in "fO":
        return array
    listed = array.tolist()
    if missing := [row for row, label in enumerate(listed) if label is None or str(label) == "nan"]:
        raise ValueError(f"no label: {len(missing)} items (rows {few(missing)}); leave them out")
    array = np.asarray(listed)
    if array.dtype.kind != "f":
        return array
    whole = array.astype(np.int64)
    if broken := array[array != whole].tolist():
        raise ValueError(f"labels must be integers or words that name classes, got {broken[0]:.3g}")
    return whole


def level_columns(names: Iterable[str]) -> list[str]:
    """Those that are called level_1, level_2, ..., the coarsest first."""
    result = [name for name in names if re.fullmatch(r"level_\d+", name)]
    result.sort(key=lambda name: int(name.removeprefix("level_")))
    if result != [f"level_{place + 1}" for place in range(len(result))]:
        raise ValueError(f"levels must be called level_1, level_2, ...; got {', '.join(result)}")
    return result


def nested_levels(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """Columns of names, the coarsest first, as levels of one hierarchy: a name that stands below
    two others means two things, and is told with the one above it."""
    levels: dict[str, list[str]] = {}
    above: list[str] | None = None
    for name, column in columns.items():
        words = [str(word) for word in column]
        if above is not None:
            parents: dict[str, set[str]] = {}
            for word, parent in zip(words, above, strict=True):
                parents.setdefault(word, set()).add(parent)
            both = zip(words, above, strict=True)
            words = [
                f"{parent}/{word}" if len(parents[word]) > 1 else word for word, parent in both
            ]
        levels[name] = above = words
    return levels


def first_labels(sets: Column, source: str) -> list[str]:
    """The first label of each set, by which items are divided; a set without labels is an error."""
    words = [_set_of(cell) for cell in sets]
    empty = [row for row, names in enumerate(words) if not names]
    if empty:
        raise ValueError(
            f"{source}: {len(empty)} items have no labels, the first is {empty[0] + 1}"
        )
    return [names[0] for names in words]


def coded_sets(sets: Column) -> tuple[IntArray, list[str]]:  # [n, S], names
    """The labels of each item as places in the names, -1 where it has no more."""
    words = [_set_of(cell) for cell in sets]
    codes, names = coded([word for row in words for word in row])
    lengths = np.array([len(row) for row in words])
    table = np.full((len(words), int(lengths.max(initial=0))), -1, dtype=np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = codes
    return table, names


def set_words(sets: IntArray, names: Sequence[str]) -> list[str]:
    """The same as people write them."""
    return [SEPARATOR.join(str(names[code]) for code in row if code >= 0) for row in sets]


def _set_of(cell: Any) -> list[str]:
    words = [word.strip() for word in str(cell).split(SEPARATOR)]
    return list(dict.fromkeys(word for word in words if word))


def _is_number(word: str) -> bool:
    """A whole number in its usual writing: 007 stays a name."""
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(word)) == word and len(digits) < 19


def _official(
    labels: IntArray, names: list[str], split: Column, source: str
) -> tuple[IntArray, IntArray | None]:
    """Test and validation classes of a split column."""
    words = np.char.lower(np.char.strip(np.asarray(split).astype(str)))
    for word in np.unique(words).tolist():
        if word not in PARTS:
            raise ValueError(f"{source}: split must be train, validation or test, got {word!r}")
    parts = np.array([PARTS[word] for word in words.tolist()])
    if "test" not in parts:  # where there are two parts, the second is evaluated, whatever its name
        parts[parts == "val"] = "test"
    classes = {name: np.unique(labels[parts == name]) for name in ("train", "val", "test")}
    if not len(classes["train"]) or not len(classes["test"]):
        raise ValueError(f"{source}: split needs rows of train and of test (or validation)")
    for one, other in (("train", "test"), ("train", "val"), ("val", "test")):
        both = np.intersect1d(classes[one], classes[other])
        if len(both):
            some = ", ".join(names[c] for c in both[:_NAMED])
            raise ValueError(
                f"{source}: {len(both)} classes are in both {one} and {other} ({some} ...), but "
                "unseen classes are what is evaluated. Use no split column to split by class."
            )
    return classes["test"], classes["val"] if len(classes["val"]) else None


def flags(values: Column, name: str, source: str) -> BoolArray:
    """Yes or no per item; empty is no."""
    array = np.asarray(values)
    if array.dtype == bool:
        return array
    words = np.char.lower(np.char.strip(array.astype(str)))
    for word in np.unique(words).tolist():
        if word not in _TRUE | _FALSE:
            raise ValueError(f"{source}: {name} must be true or false, got {word!r}")
    return np.isin(words, list(_TRUE))


def class_counts(labels: IntArray, names: Sequence[str]) -> dict[str, Any]:
    """What every data set says of itself: items, classes, and how unequal they are."""
    counts = np.bincount(labels)
    return {
        "items": len(labels),
        "classes": len(names),
        "smallest class": int(counts.min()),
        "largest class": int(counts.max()),
    }


def lacking(incomplete: str) -> dict[str, Any]:
    """What a data set says of items it lacks; nothing where it is whole."""
    return {INCOMPLETE: incomplete} if incomplete else {}


def lone_classes(labels: IntArray, names: Sequence[str]) -> dict[str, Any]:
    """Classes whose one item has no partner: how many, and the first by name."""
    lone = np.flatnonzero(np.bincount(labels) == 1)
    first = [str(names[label]) for label in lone[:_NAMED]]
    return {"classes with one image": len(lone), "lone classes": first}


def lost_line(names: Sequence[str]) -> str:
    """What is said of classes that no file of can be read."""
    has, do = ("class has", "does") if len(names) == 1 else ("classes have", "do")
    return f"{len(names)} {has} only files that cannot be read, and {do} not count: {few(names)}"


class Items:
    """A base to build on: items with labels.

    Args:
        name: what pages call the data set.
        metadata: its labels and annotations.
        incomplete: what it lacks, in a sentence.
    """

    def __init__(self, name: str, metadata: Described, incomplete: str = "") -> None:
        self.name, self.incomplete = name, incomplete
        self.labels: IntArray = metadata.labels
        self.label_names: Sequence[str] = metadata.label_names
        self.official_test_classes: IntArray | None = metadata.test_classes
        self.annotations: Annotations = metadata.annotations

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self) -> dict[str, Any]:
        counts = class_counts(self.labels, self.label_names)
        lone = lone_classes(self.labels, self.label_names)
        return counts | lone | lacking(self.incomplete)


class FeatureItems(Items):
    """A base to build on: rows of features.

    Args:
        features: [n, P] numbers.
        name: what pages call the data set.
        metadata: its labels and annotations.
        incomplete: what it lacks, in a sentence.
    """

    def __init__(
        self, features: NDArray[Any], name: str, metadata: Described, incomplete: str = ""
    ) -> None:
        super().__init__(name, metadata, incomplete)
        self.features = features

    def image(self, index: int) -> Image.Image:
        raise ValueError(f"{self.name} are features, no images")

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"features": self.features.shape[1]}

    def item_ids(self) -> list[str]:
        return row_ids(len(self))

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """The same in memory and in a file, where a run may look for them later."""
        return row_digests(self.features)


class PixelItems(Items):
    """A base to build on: grey images of one size.

    Args:
        pixels: uint8 [n, height, width], not to be written to from now on.
        name: what pages call the data set.
        metadata: its labels and annotations.
    """

    def __init__(self, pixels: NDArray[np.uint8], name: str, metadata: Described) -> None:
        super().__init__(name, metadata)
        self._pixels = pixels
        self._pixels.flags.writeable = False

    def describe(self) -> dict[str, Any]:
        return class_counts(self.labels, self.label_names)

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self._pixels[index]).convert("RGB")

    def arrays(self) -> NDArray[np.uint8]:  # [n, height, width]
        """Every image at once, grey, not to be written to."""
        return self._pixels

    def item_ids(self) -> list[str]:
        return row_ids(len(self))

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        return row_digests(self._pixels)

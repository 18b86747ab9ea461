"""`arrays`: features and labels in one .npz file; the network is then a head.

    features     [n, P] numbers, one row per item           required
    labels       [n] integers or words                      required
    label_names  [C] what integer label c is called         optional, like all below
    split        [n] train, validation or test: no class in two of them
    is_query, is_gallery   [n] which test items ask, which answer
    groups       [n] items of a group (a camera, a sequence) do not answer each other
    label_<name> [n] further labels, to evaluate by
    label_sets   [n] several labels of an item, as words red|round
    level_1, level_2, ...  [n] a hierarchy, the coarsest first; or `levels`, the names of the
                 further labels that are one
    incomplete   what the data they were made of lacked, in a sentence
    of           the name of the data set they were made of, such as cub200
    files        [n] the images they were made of, to look at

Without `split` the second half of the classes, in the order of their labels, is tested: the
convention of the benchmarks. `unseen data features` makes such a file of any data set.
"""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unseen.core import read_limits
from unseen.core.contracts import Dataset, annotations_of
from unseen.core.names import known, near_path
from unseen.data.base import (
    INCOMPLETE,
    Column,
    Columns,
    Described,
    FeatureItems,
    described,
    level_columns,
    nested_levels,
    set_words,
)

EXTRA = "label_"  # the names of further label columns begin with it
NAMES, SETS, LEVELS = "label_names", "label_sets", "levels"
OF = "of"
FILES = "files"
PER_FILE = (NAMES, LEVELS, INCOMPLETE)  # columns without an entry per item


class Arrays(FeatureItems):
    """Features and labels of a .npz file.

    Args:
        root: The file.
        features: The name of its array of features [n, P].
        labels: The name of its array of labels [n].
        test: Which classes are tested where the file does not say: the `second_half`, or for each
            seed some drawn at `random`.

    Example:
        >>> from unseen.data import Arrays
        >>> Arrays("features.npz").features.shape  # doctest: +SKIP
    """

    def __init__(
        self,
        root: str | Path,
        features: str = "features",
        labels: str = "labels",
        test: Literal["second_half", "random"] = "second_half",
    ) -> None:
        if test not in ("second_half", "random"):
            raise ValueError(f"test must be second_half or random, got {test!r}")
        self.root = Path(root)
        arrays = _read(self.root)
        for key in (features, labels):
            if key not in arrays:
                raise ValueError(
                    f"{root} has no array {key!r}, it has {', '.join(arrays) or 'none'}; name them "
                    "with data.features= and data.labels="
                )
        rows = _checked(arrays.pop(features), root)  # [n, P]
        metadata = read_columns(arrays, len(rows), root, labels)
        super().__init__(rows, self.root.stem, metadata, str(arrays.get(INCOMPLETE, "")))
        if metadata.test_classes is None and test == "second_half":
            classes = np.arange(len(metadata.label_names))
            self.official_test_classes = classes[len(classes) // 2 :]
        self.files: list[str] = [str(file) for file in arrays.get(FILES, ())]

    @staticmethod
    def source(root: str | Path) -> str:
        """The data set that the features of a file were made of; empty where it does not say."""
        with read_limits.load(Path(root)) as arrays:
            return str(arrays[OF]) if OF in arrays.files else ""

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return root.suffix.lower() == ".npz"

    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.features).tobytes())
        digest.update(repr((self.features.shape, self.features.dtype.str)).encode())
        digest.update(self.labels.tobytes())
        digest.update("\0".join(self.label_names).encode())
        return digest.hexdigest()


def columns_of(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Labels, names, official parts and annotations, as this file has them."""
    annotations = annotations_of(dataset)
    columns: dict[str, NDArray[Any]] = {
        "labels": dataset.labels,
        NAMES: np.array([str(name) for name in dataset.label_names]),
    }
    if dataset.official_test_classes is not None:
        tested = np.isin(dataset.labels, dataset.official_test_classes)
        own = () if annotations.validation_classes is None else annotations.validation_classes
        rest = np.where(np.isin(dataset.labels, own), "validation", "train")
        columns["split"] = np.where(tested, "test", rest)
    some = {
        "is_query": annotations.query,
        "is_gallery": annotations.gallery,
        "groups": annotations.ignore_groups,
    }
    columns |= {name: column for name, column in some.items() if column is not None}
    for name, codes in annotations.labels.items():
        columns[f"{EXTRA}{name}"] = np.array(annotations.label_names[name])[codes]
    if annotations.levels:
        columns[LEVELS] = np.array(annotations.levels)
    if annotations.label_sets is not None:
        columns[SETS] = np.array(set_words(annotations.label_sets, annotations.set_names))
    if incomplete := dataset.describe().get(INCOMPLETE):
        columns[INCOMPLETE] = np.array(incomplete)
    return columns


def read_columns(
    arrays: dict[str, NDArray[Any]], rows: int, root: str | Path, labels: str = "labels"
) -> Described:
    """What the columns say of so many rows; root: the file, in messages."""
    metadata = described(_columns(arrays, arrays.pop(labels), rows, root), str(root))
    return replace(metadata, label_names=_names(metadata.label_names, arrays.get(NAMES), root))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}{near_path(path)}")
    try:
        with path.open("rb") as stream, read_limits.load(stream, path) as arrays:
            return dict(arrays)
    except read_limits.TooLargeError:
        raise
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a whole .npz file of plain arrays: {error}") from error


def _checked(features: NDArray[Any], root: str | Path) -> NDArray[Any]:
    shape = list(features.shape)
    if features.ndim != 2 or min(shape) < 1 or features.dtype.kind not in "fiu":
        raise ValueError(f"features of {root} must be [n, P] numbers, got {features.dtype} {shape}")
    most = np.finfo(np.float32).max  # a network computes in float32
    broken = np.flatnonzero(~(np.abs(features) <= most).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{len(broken)} rows of features of {root} are not finite or beyond {most:.2g}, the "
            f"largest float32; the first is row {broken[0]}"
        )
    return features


def _columns(
    arrays: dict[str, NDArray[Any]], labels: NDArray[Any], rows: int, root: str | Path
) -> Columns:
    """The columns by their names in the file, each with one entry per row."""
    extra = [key for key in arrays if key.startswith(EXTRA) and key not in (NAMES, SETS)]
    named = {"split": "split", "query": "is_query", "gallery": "is_gallery", "groups": "groups"}
    named |= {SETS: SETS}
    own = {field: arrays[key] for field, key in named.items() if key in arrays}
    more = {key.removeprefix(EXTRA): arrays[key] for key in extra}
    levels = {key: arrays[key] for key in level_columns(arrays)}
    for key, column in {"labels": labels, **own, **more, **levels}.items():
        if column.shape != (rows,):
            raise ValueError(f"{key} of {root} must be [{rows}], got {list(column.shape)}")
    if labels.dtype.kind not in "iuUb":
        raise ValueError(f"labels of {root} must be integers or words, got {labels.dtype}")
    names = [str(name) for name in arrays.get(LEVELS, np.array(list(levels)))]
    for name in names:
        known(name, [*more, *levels], f"further label of {root}")
    every: dict[str, Column] = {**more, **nested_levels(levels)}
    return Columns(labels, more=every, levels=names, **own)


def _names(values: list[str], label_names: NDArray[Any] | None, root: str | Path) -> list[str]:
    """What classes are called: `label_names`, where integer labels point into it."""
    if label_names is None:
        return values
    if not all(value.isdigit() and int(value) < len(label_names) for value in values):
        raise ValueError(
            f"{NAMES} of {root} has {len(label_names)} entries: labels must be 0 to "
            f"{len(label_names) - 1}"
        )
    return [str(label_names[int(value)]) for value in values]

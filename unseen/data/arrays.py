"""`arrays`: features and labels in one .npz file; the network is then a head.

    features     [n, P] numbers, one row per item           required
    labels       [n] integers or words                      required
    label_names  [C] what integer label c is called         optional, like all below
    split        [n] train, validation or test: no class in two of them
    is_query, is_gallery   [n] which test items ask, which answer
    groups       [n] items of a group (a camera, a sequence) do not answer each other
    label_<name> [n] further labels, to judge by
    label_sets   [n] several labels of an item, as words red|round
    level_1, level_2, ...  [n] a hierarchy, the coarsest first; or `levels`, the names of the
                 further labels that are one
    incomplete   what the data they were made of lacked, in a sentence
    of           the name of the data set they were made of, such as cub200
    files        [n] the pictures they were made of, to look at

Without `split` the second half of the classes, in the order of their labels, is tested: the
convention of the benchmarks. `unseen features` makes such a file from any data set and backbone.
"""

import hashlib
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.contracts import Progress
from unseen.data.base import (
    INCOMPLETE,
    Column,
    Columns,
    class_counts,
    described,
    lacking,
    level_columns,
    lone_classes,
    nested_levels,
)
from unseen.data.pictures.item_digests import row_digests, row_ids
from unseen.names import known, near_path

FURTHER = "label_"  # the names of further label columns begin with it
NAMES, SETS, LEVELS = "label_names", "label_sets", "levels"
OF = "of"
FILES = "files"


class Arrays:
    """root: the .npz file. features, labels: the names of its arrays. test: which classes are
    tested where the file does not say, the second half or, for each seed, some drawn at random."""

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
        self.name = self.root.stem
        held = _read(self.root)
        for key in (features, labels):
            if key not in held:
                raise ValueError(
                    f"{root} has no array {key!r}, it has {', '.join(held) or 'none'}; name them "
                    "with data.features= and data.labels="
                )
        self.features: NDArray[np.floating[Any]] = _checked(held.pop(features), root)  # [n, P]
        columns = _columns(held, held.pop(labels), len(self.features), root)
        facts = described(columns, str(root))
        self.labels, self.official_test_classes = facts.labels, facts.test_classes
        if facts.test_classes is None and test == "second_half":
            classes = np.arange(len(facts.label_names))
            self.official_test_classes = classes[len(classes) // 2 :]
        self.annotations = facts.annotations
        self._incomplete = str(held.get(INCOMPLETE, ""))
        self.files: list[str] = [str(file) for file in held.get(FILES, ())]
        self.label_names = _names(facts.label_names, held.get(NAMES), root)

    @staticmethod
    def source(root: str | Path) -> str:
        """The data set that the features of a file were made of; empty where it does not say."""
        with np.load(Path(root), allow_pickle=False) as held:
            return str(held[OF]) if OF in held.files else ""

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return root.suffix.lower() == ".npz"

    def __len__(self) -> int:
        return len(self.labels)

    def picture(self, index: int) -> Image.Image:
        raise ValueError(f"{self.root} holds features, no pictures")

    def item_ids(self) -> list[str]:
        return row_ids(len(self))

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        return row_digests(self.features)

    def describe(self) -> dict[str, Any]:
        counts = class_counts(self.labels, self.label_names) | lone_classes(
            self.labels, self.label_names
        )
        return counts | {"features": self.features.shape[1]} | lacking(self._incomplete)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.features).tobytes())
        digest.update(repr((self.features.shape, self.features.dtype.str)).encode())
        digest.update(self.labels.tobytes())
        digest.update("\0".join(self.label_names).encode())
        return digest.hexdigest()


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}{near_path(path)}")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
            return dict(held)
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
    held: dict[str, NDArray[Any]], labels: NDArray[Any], rows: int, root: str | Path
) -> Columns:
    """The columns by their names in the file, each with one entry per row."""
    further = [key for key in held if key.startswith(FURTHER) and key not in (NAMES, SETS)]
    named = {"split": "split", "query": "is_query", "gallery": "is_gallery", "groups": "groups"}
    named |= {SETS: SETS}
    own = {field: held[key] for field, key in named.items() if key in held}
    more = {key.removeprefix(FURTHER): held[key] for key in further}
    levels = {key: held[key] for key in level_columns(held)}
    for key, column in {"labels": labels, **own, **more, **levels}.items():
        if column.shape != (rows,):
            raise ValueError(f"{key} of {root} must be [{rows}], got {list(column.shape)}")
    if labels.dtype.kind not in "iuUb":
        raise ValueError(f"labels of {root} must be integers or words, got {labels.dtype}")
    names = [str(name) for name in held.get(LEVELS, np.array(list(levels)))]
    for name in names:
        known(name, [*more, *levels], f"further label of {root}")
    every: dict[str, Column] = {**more, **nested_levels(levels)}
    return Columns(labels, more=every, levels=names, **own)


def _names(values: list[str], given: NDArray[Any] | None, root: str | Path) -> list[str]:
    """What classes are called: `label_names`, where integer labels point into it."""
    if given is None:
        return values
    if not all(value.isdigit() and int(value) < len(given) for value in values):
        raise ValueError(
            f"{NAMES} of {root} has {len(given)} entries: labels must be 0 to {len(given) - 1}"
        )
    return [str(given[int(value)]) for value in values]

"""Any data a user has in a program, as a data set:

    [(path, label), ...]                     pictures in files
    torchvision's ImageFolder                by its paths; its transform is ours to choose
    any object with len and [i] -> (picture, label): torch's data sets; pictures are PIL pictures,
                                             paths, or arrays and tensors (uint8, or floats 0 to 1)
    a Hugging Face datasets.Dataset          its picture and its label column, found by their types
    (features [n, P], labels [n])            numbers: the network is then a head
    (pictures [n, height, width(, 3)] uint8, labels)

Labels are integers or words. A data set that is one of ours already (`contracts.Dataset`) stays as
it is.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.contracts import Dataset, Progress
from unseen.data.base import Columns, Described, class_counts, coded, described, lone_classes
from unseen.data.pictures.decode import decode
from unseen.data.pictures.files import PictureFiles
from unseen.data.pictures.item_digests import row_digests, row_ids

NAME = "data of your own"


def as_dataset(data: Any, progress: Progress | None = None) -> Dataset:
    """The data set that an object stands for; what cannot be one is refused with what can."""
    if isinstance(data, Dataset):
        return data
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _hugging_face(data)
    if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str | Path):
        return _arrays(np.asarray(data[0]), data[1])
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise ValueError(
            f"data must be a path, a list of (path, label), a data set with len and [i] -> "
            f"(picture, label), a datasets.Dataset, or (features, labels); got {type(data)}"
        )
    samples = getattr(data, "samples", data if isinstance(data, list) else None)
    if samples and all(_is_file_of_a_class(sample) for sample in samples):
        return _files(samples, getattr(data, "classes", None))
    labels = _labels_of(data, progress)
    names = getattr(data, "classes", None)
    return GivenPictures(lambda index: data[index][0], len(data), _told(labels, names))


class GivenPictures:
    """Pictures that a call brings: `take(i)`."""

    def __init__(
        self, take: Callable[[int], Any], number: int, facts: Described, name: str = NAME
    ) -> None:
        self._take, self._number, self.name = take, number, name
        self.labels = facts.labels
        self.label_names: Sequence[str] = facts.label_names
        self.official_test_classes = facts.test_classes
        self.annotations = facts.annotations
        self._digests: list[bytes] | None = None

    def __len__(self) -> int:
        return self._number

    def picture(self, index: int) -> Image.Image:
        return as_picture(self._take(index))

    def describe(self) -> dict[str, Any]:
        return class_counts(self.labels, self.label_names) | lone_classes(
            self.labels, self.label_names
        )

    def item_ids(self) -> list[str]:
        return [f"item {index}" for index in range(len(self))]

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of the pixels of each picture."""
        if self._digests is None:
            self._digests = []
            for index in range(len(self)):
                pixels = np.asarray(self.picture(index))
                size = repr(pixels.shape).encode()
                self._digests.append(hashlib.sha256(size + pixels.tobytes()).digest())
                if progress is not None:
                    progress(index + 1, len(self))
        return list(self._digests)

    def fingerprint(self) -> str:
        return _fingerprint(self.labels, self.label_names, self.digests())


class GivenFeatures:
    """Features and labels at hand."""

    def __init__(self, features: NDArray[Any], facts: Described, name: str = NAME) -> None:
        self.features, self.name = features, name  # [n, P]
        self.labels = facts.labels
        self.label_names: Sequence[str] = facts.label_names
        self.official_test_classes = facts.test_classes
        self.annotations = facts.annotations

    def __len__(self) -> int:
        return len(self.labels)

    def picture(self, index: int) -> Image.Image:
        raise ValueError(f"{self.name} are features, no pictures")

    def describe(self) -> dict[str, Any]:
        counts = class_counts(self.labels, self.label_names) | lone_classes(
            self.labels, self.label_names
        )
        return counts | {"features": self.features.shape[1]}

    def item_ids(self) -> list[str]:
        return row_ids(len(self))

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """As in a file of them (`arrays`), where a run may look for them later."""
        return row_digests(self.features)

    def fingerprint(self) -> str:
        return _fingerprint(self.labels, self.label_names, self.digests())


def as_picture(given: Any) -> Image.Image:
    """A picture as RGB, from whatever a data set gave."""
    if isinstance(given, Image.Image):
        return given.convert("RGB")
    if isinstance(given, str | Path):
        return decode(Path(given))
    pixels = array = np.asarray(given)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)  # channels first, as tensors have them
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = (255 * pixels).round().astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        raise ValueError(
            "a picture must be a PIL picture, a path, or an array of uint8 or of floats from 0 to "
            f"1, [height, width(, 3)] or [3, height, width]; got {_said(array)}. Leave normalising "
            "to the run."
        )
    return Image.fromarray(pixels).convert("RGB")


def _is_file_of_a_class(sample: Any) -> bool:
    return isinstance(sample, tuple | list) and isinstance(sample[0], str | Path)


def _files(samples: Sequence[Any], names: Sequence[str] | None) -> Dataset:
    """(path, label) pairs."""
    paths = [Path(path) for path, *_ in samples]
    absent = [str(path) for path in paths if not path.is_file()]
    if absent:
        raise FileNotFoundError(f"{len(absent)} files are not there, the first: {absent[0]}")
    folders = {path.parent.resolve() for path in paths}
    root = next(iter(folders)) if len(folders) == 1 else Path.cwd()
    made: Any = PictureFiles(root, NAME, paths, _told([label for _, label, *_ in samples], names))
    return made


def _hugging_face(data: Any) -> GivenPictures:
    """The columns are known by their types: one of pictures, one of class labels (or `label`)."""
    kinds = {name: type(kind).__name__ for name, kind in data.features.items()}
    pictures = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    labels = labels or [name for name in ("label", "labels", "class") if name in kinds]
    if len(pictures) != 1 or len(labels) != 1:
        columns = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise ValueError(
            "a datasets.Dataset needs one column of pictures and one of class labels, got "
            f"{columns}: keep one of each with select_columns()"
        )
    names = getattr(data.features[labels[0]], "names", None)
    told = _told(list(data[labels[0]]), names)
    return GivenPictures(lambda index: data[index][pictures[0]], len(data), told)


def _arrays(values: NDArray[Any], labels: Any) -> Dataset:
    if len(values) != len(labels):
        raise ValueError(f"{len(values)} items and {len(labels)} labels: there must be as many")
    told = _told(labels, None)
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        return GivenPictures(lambda index: values[index], len(values), told)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(
            "arrays must be features [n, P] or uint8 pictures [n, height, width(, 3)], got "
            f"{values.dtype} {list(values.shape)}"
        )
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise ValueError("features must be finite numbers that float32 can hold")
    return GivenFeatures(values, told)


def _labels_of(data: Any, progress: Progress | None) -> list[Any]:
    """From the attribute where data sets usually keep them, else by looking at every item."""
    for name in ("targets", "labels"):
        held = getattr(data, name, None)
        if held is not None and len(held) == len(data):
            return list(np.asarray(held).tolist())
    found = []
    for index in range(len(data)):
        item = data[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise ValueError(f"item {index} must be (picture, label), got {type(item).__name__}")
        found.append(item[1].item() if hasattr(item[1], "item") else item[1])
        if progress is not None:
            progress(index + 1, len(data))
    return found


def _told(labels: Sequence[Any], names: Sequence[str] | None) -> Described:
    """`names`: what integer label c is called."""
    facts = described(Columns(np.asarray(labels)), NAME)
    if names is None:
        return facts
    _, values = coded(np.asarray(labels))
    called = [str(names[int(v)]) if v.isdigit() and int(v) < len(names) else v for v in values]
    return Described(facts.labels, called, facts.test_classes, facts.annotations)


def _fingerprint(labels: NDArray[np.int64], names: Sequence[str], digests: Sequence[bytes]) -> str:
    digest = hashlib.sha256(labels.tobytes() + "\0".join(map(str, names)).encode())
    digest.update(b"".join(digests))
    return digest.hexdigest()


def _said(array: NDArray[Any]) -> str:
    """float32 [3, 32, 32] from -2.1 to 2.6."""
    ends = f" from {array.min():.2g} to {array.max():.2g}" if array.dtype.kind == "f" else ""
    return f"{array.dtype} {list(array.shape)}{ends}"

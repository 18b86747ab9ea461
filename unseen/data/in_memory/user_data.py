"""Any data a user has in a program, as a data set:

    [(path, label), ...], (paths, labels)    images in files
    torchvision's data sets                  by their paths; with a transform by what that gives:
                                             tensors go into the network as they are
    any object with len and [i] -> (image, label): torch's data sets; images are PIL images,
                                             paths, or arrays and tensors (uint8, or floats 0 to 1)
    a Hugging Face datasets.Dataset          its image and its label column, found by their types
    (features [n, P], labels [n])            numbers: the network is then a head
    (images [n, height, width(, 3)] uint8, labels)

Labels are integers or words, also as floats or one-hot rows. A data set that is one of ours already
(`contracts.Dataset`) stays as it is.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.core.contracts import Dataset, Progress
from unseen.data.base import (
    Columns,
    Described,
    FeatureItems,
    Items,
    class_labels,
    coded,
    described,
)
from unseen.data.images.crops import Prepared
from unseen.data.images.decode import decode
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.load_image import as_rgb, upright

NAME = "data of your own"
LABELS = ("targets", "labels")  # where data sets usually keep them


def as_dataset(data: Any, progress: Progress | None = None) -> Dataset:
    """The data set that an object stands for; what cannot be one is refused with what can."""
    if isinstance(data, Dataset):
        return data
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _hugging_face(data)
    if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str | Path):
        return _two(*data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise ValueError(
            f"data must be a path, a list of (path, label), a data set with len and [i] -> "
            f"(image, label), a datasets.Dataset, or (features, labels); got {type(data)}"
        )
    if isinstance(data, list) and data and all(isinstance(each, str | Path) for each in data):
        raise ValueError(
            f"{len(data)} images without labels: give the class of each, [(path, label), ...] or "
            "(paths, labels), or a folder with one folder for each class"
        )
    transform, names = _transform_of(data), getattr(data, "classes", None)
    samples = getattr(data, "samples", data if isinstance(data, list) else None)
    if transform is None and samples and all(_is_file_of_a_class(sample) for sample in samples):
        return _files(samples, names, getattr(data, "target_transform", None))
    metadata = _metadata(_labels_of(data, progress), names)

    def take(index: int, seed: int = 0) -> Any:
        with _drawing(seed):
            return data[index][0]

    is_opened = transform is not None or not any(hasattr(data, name) for name in LABELS)
    first: Any = take(0) if is_opened else None
    is_float = isinstance(first, Tensor) and first.is_floating_point()
    if is_float and (transform is not None or first.min() < 0 or first.max() > 1):
        return UserTensors(take, first.shape, metadata)
    return UserImages(take, metadata)


class _UserItems(Items, ABC):
    """Abstract: items that a call brings."""

    def __init__(self, metadata: Described) -> None:
        super().__init__(NAME, metadata)
        self._digests: list[bytes] | None = None

    @abstractmethod
    def image(self, index: int) -> Image.Image:
        """What people see of an item."""

    @abstractmethod
    def content(self, index: int) -> NDArray[Any]:
        """What an item is known by."""

    def item_ids(self) -> list[str]:
        return [f"item {index}" for index in range(len(self))]

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of the content of each item."""
        if self._digests is None:
            self._digests = []
            for index in range(len(self)):
                content = self.content(index)
                size = repr(content.shape).encode()
                self._digests.append(hashlib.sha256(size + content.tobytes()).digest())
                if progress is not None:
                    progress(index + 1, len(self))
        return list(self._digests)

    def fingerprint(self) -> str:
        return _fingerprint(self.labels, self.label_names, self.digests())


class UserImages(_UserItems):
    """Images that a call brings: `take(i)`."""

    def __init__(self, take: Callable[[int], Any], metadata: Described) -> None:
        super().__init__(metadata)
        self._take = take

    def image(self, index: int) -> Image.Image:
        return as_image(self._take(index))

    def content(self, index: int) -> NDArray[Any]:
        return np.asarray(self.image(index))


class UserTensors(_UserItems):
    """Tensors [3, side, side] that the data set's own transform makes: `take(i, seed)`."""

    def __init__(
        self, take: Callable[[int, int], Any], shape: Sequence[int], metadata: Described
    ) -> None:
        super().__init__(metadata)
        self._make, self._shape, self._side = take, tuple(shape), shape[-1]
        if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
            raise ValueError(
                f"the data set gives tensors {list(shape)}, a network takes 3 channels, square: "
                "add Grayscale(3), Resize((s, s)) or CenterCrop(s) to its transform"
            )

    def opened(self, index: int) -> Prepared:
        return Prepared(lambda seed: self._tensor(index, seed), self._side)

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.opened(index).pixels())

    def content(self, index: int) -> NDArray[Any]:
        return self._tensor(index, 0).numpy()

    def _tensor(self, index: int, seed: int) -> Tensor:
        made: Tensor = self._make(index, seed)
        if tuple(made.shape) != self._shape:
            raise ValueError(
                f"item {index} of the data set is {list(made.shape)}, the first "
                f"{list(self._shape)}: resize all alike in its transform"
            )
        return made.float()


class UserFeatures(FeatureItems):
    """Features and labels at hand."""

    def __init__(self, features: NDArray[Any], metadata: Described, name: str = NAME) -> None:
        super().__init__(features, name, metadata)

    def fingerprint(self) -> str:
        return _fingerprint(self.labels, self.label_names, self.digests())


def as_image(value: Any) -> Image.Image:
    """An image as RGB, from whatever a data set gave."""
    if isinstance(value, Image.Image):
        return as_rgb(upright(value))
    if isinstance(value, str | Path):
        return decode(Path(value))
    pixels = array = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)  # channels first, as tensors have them
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = (255 * pixels).round().astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        raise ValueError(
            "an image must be a PIL image, a path, or an array of uint8 or of floats from 0 to "
            f"1, [height, width(, 3)] or [3, height, width]; got {_summary(array)}. Leave "
            "normalising to the run, or to the `transform` of the data set."
        )
    return Image.fromarray(pixels).convert("RGB")


def _is_file_of_a_class(sample: Any) -> bool:
    return isinstance(sample, tuple | list) and isinstance(sample[0], str | Path)


def _transform_of(data: Any) -> Any:
    """What a data set, or that of which it is a part, does to its images; None: nothing."""
    inner = getattr(data, "dataset", None)
    return getattr(data, "transform", None) or (None if inner is None else _transform_of(inner))


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Strangers' random steps draw from global generators: lends them a seed, puts them back."""
    before, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - theirs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numbers)  # noqa: NPY002


def _files(
    samples: Sequence[Any], names: Sequence[str] | None, change: Callable[[Any], Any] | None = None
) -> Dataset:
    """(path, label) pairs. change: of labels."""
    paths = [Path(path) for path, *_ in samples]
    absent = [str(path) for path in paths if not path.is_file()]
    if absent:
        raise FileNotFoundError(f"{len(absent)} files are not there, the first: {absent[0]}")
    folders = {path.parent.resolve() for path in paths}
    root = next(iter(folders)) if len(folders) == 1 else Path.cwd()
    labels = [label if change is None else change(label) for _, label, *_ in samples]
    made: Any = ImageFiles(root, NAME, paths, _metadata(labels, names))
    return made


def _hugging_face(data: Any) -> UserImages:
    """The columns are known by their types: one of images, one of class labels (or `label`)."""
    kinds = {name: type(kind).__name__ for name, kind in data.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    labels = labels or [name for name in ("label", "labels", "class") if name in kinds]
    if len(images) != 1 or len(labels) != 1:
        columns = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise ValueError(
            "a datasets.Dataset needs one column of images and one of class labels, got "
            f"{columns}: keep one of each with select_columns()"
        )
    names = getattr(data.features[labels[0]], "names", None)
    metadata = _metadata(list(data[labels[0]]), names)
    return UserImages(lambda index: data[index][images[0]], metadata)


def _two(items: Any, labels: Any) -> Dataset:
    """(paths, labels), (features, labels) or (images, labels)."""
    values, labels = np.asarray(items), class_labels(labels)
    if len(values) != len(labels):
        raise ValueError(f"{len(values)} items and {len(labels)} labels: there must be as many")
    if all(isinstance(item, str | Path) for item in items):
        return _files(list(zip(items, labels.tolist(), strict=True)), None)
    metadata = _metadata(labels, None)
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        return UserImages(lambda index: values[index], metadata)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(
            "arrays must be features [n, P] or uint8 images [n, height, width(, 3)], got "
            f"{values.dtype} {list(values.shape)}"
        )
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise ValueError("features must be finite numbers that float32 can hold")
    return UserFeatures(values, metadata)


def _labels_of(data: Any, progress: Progress | None) -> list[Any]:
    """From the attribute where data sets usually keep them, else by looking at every item."""
    change = getattr(data, "target_transform", None)
    for name in LABELS:
        labels = getattr(data, name, None)
        if labels is not None and len(labels) == len(data):
            labels = list(np.asarray(labels).tolist())
            return labels if change is None else [change(label) for label in labels]
    result = []
    for index in range(len(data)):
        item = data[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise ValueError(f"item {index} must be (image, label), got {type(item).__name__}")
        result.append(np.asarray(item[1]).tolist())
        if progress is not None:
            progress(index + 1, len(data))
    return result


def _metadata(labels: Sequence[Any], names: Sequence[str] | None) -> Described:
    """`names`: what integer label c is called."""
    plain = class_labels(labels)
    metadata = described(Columns(plain), NAME)
    if names is None:
        return metadata
    _, values = coded(plain)
    called = [str(names[int(v)]) if v.isdigit() and int(v) < len(names) else v for v in values]
    return Described(metadata.labels, called, metadata.test_classes, metadata.annotations)


def _fingerprint(labels: NDArray[np.int64], names: Sequence[str], digests: Sequence[bytes]) -> str:
    digest = hashlib.sha256(labels.tobytes() + "\0".join(map(str, names)).encode())
    digest.update(b"".join(digests))
    return digest.hexdigest()


def _summary(array: NDArray[Any]) -> str:
    """float32 [3, 32, 32] from -2.1 to 2.6."""
    ends = f" from {array.min():.2g} to {array.max():.2g}" if array.dtype.kind == "f" else ""
    return f"{array.dtype} {list(array.shape)}{ends}"

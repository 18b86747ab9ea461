"""Images in files: what every data set shares that knows the places of its images (paths,
URIs, items of a tar or a table: `containers.locations`) and their labels."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from unseen.core import uris
from unseen.core.contracts import IntArray, Progress
from unseen.core.uris import Place
from unseen.data.base import Described, Items
from unseen.data.containers import locations
from unseen.data.images.boxes import inside, mark
from unseen.data.images.crops import LazyImage
from unseen.data.images.decode import (
    Box,
    SafeImageFile,
    UnreadableImageError,
    check,
    decode,
    is_image,
)
from unseen.data.images.item_digests import examined, file_digests, numbered
from unseen.data.images.prefetch import results_of

_THREADS = 8


class ImageFiles(Items):
    """A base to build on: places, labels, and the part of each image that counts: `boxes` [n, 4]
    hold left, top, right, bottom in pixels; a negative right edge means the whole image. `base`:
    where the paths in ids begin. `notes`: what was left out or decided, in sentences."""

    def __init__(self, root: Place, name: str, paths: Sequence[Place], metadata: Described) -> None:
        super().__init__(name, metadata)
        self.root, self.base = root, root
        self._paths = list(paths)
        self.group_names = metadata.group_names
        self.boxes: IntArray | None = None
        self.skipped: list[UnreadableImageError] = []
        self.skipped_labels: list[str] = []  # the class of each, where it is known
        self.notes: list[str] = []
        self._digests: list[bytes] | None = None

    def path(self, index: int) -> Place:
        return self._paths[index]

    def image(self, index: int) -> Image.Image:
        box = self.box(index)
        if box is None:
            return decode(self._paths[index])
        return Image.fromarray(self.opened(index).pixels())

    def opened(self, index: int) -> LazyImage:
        """The image before it is decoded; see `SafeImageFile`."""
        box = self.box(index)
        if box is None:
            return SafeImageFile(self._paths[index])
        return inside(self._paths[index], box)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "unreadable files": len(self.skipped),
            "unreadable": [error.line for error in self.skipped],
            "lost classes": sorted({*self.skipped_labels} - {"", *map(str, self.label_names)}),
            "notes": self.notes,
        }

    def item_ids(self) -> list[str]:
        """The path below `base`, or the name in a container, and the box where there is one; what
        is listed twice gets a number."""
        return list(self._ids)

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of each file, with its box: parts of one image are no copies of each other."""
        if self._digests is None:
            result = file_digests(self.root, self._paths, progress)
            for index in range(len(self) if self.boxes is not None else 0):
                result[index] = hashlib.sha256(result[index] + self._mark(index).encode()).digest()
            self._digests = result
        return list(self._digests)

    def fingerprint(self) -> str:
        """Hashes names, labels and the content of every file."""
        sentences = [self._ids, self.labels.tolist(), [str(name) for name in self.label_names]]
        digest = hashlib.sha256(json.dumps(sentences).encode())
        digest.update(b"".join(self.digests()))
        return digest.hexdigest()

    @cached_property
    def _ids(self) -> list[str]:
        base = os.path.join(self.base, "")

        def name(index: int) -> str:
            path = self._paths[index]
            return _below(base, path).replace(os.sep, "/") + self._mark(index)

        return numbered(name(index) for index in range(len(self)))

    def box(self, index: int) -> Box | None:
        """Left, top, right, bottom; None: the whole image counts."""
        if self.boxes is None or self.boxes[index, 2] < 0:
            return None
        left, top, right, bottom = self.boxes[index].clip(min=0).tolist()
        return left, top, right, bottom

    def _mark(self, index: int) -> str:
        return mark(self.box(index))


def _below(base: str, place: Place) -> str:
    path = os.fspath(place)
    if isinstance(place, str) and (inner := locations.name_in(place)):
        return inner
    if path.startswith(base):
        return path[len(base) :]
    return path if isinstance(place, str) else os.path.relpath(path, base)


def folders_of(path: Place, root: Place) -> tuple[str, ...]:
    """The folders between a root and an image below it."""
    if isinstance(path, str):
        return tuple(path.removeprefix(str(root).rstrip("/") + "/").split("/")[:-1])
    return path.relative_to(root).parts[:-1]


def images_at(root: Place) -> Sequence[Place]:
    """Every image file below a folder or an address, sorted."""
    if isinstance(root, Path):
        return images_in(root)
    return [place for place in uris.below(root) if is_image(uris.name_of(place))]


def images_in(folder: Path) -> list[Path]:
    """Every image file below a folder, sorted."""
    return sorted(
        parent / name for parent, _, files in walk(folder) for name in files if is_image(name)
    )


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder with the names of those in it and of its files. Links are followed, hidden
    folders and links that lead back to where they were met are passed over."""
    for parent, folders, files in os.walk(root, followlinks=True):
        here = Path(parent)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not _leads_back(here, name, root)
        )
        yield here, folders, files


def _leads_back(parent: Path, name: str, root: Path) -> bool:
    """Whether what a link points to holds a folder on the way to it."""
    path = parent / name
    if not path.is_symlink():
        return False
    way = [place for place in (parent, *parent.parents) if place.is_relative_to(root)]
    return any(place.resolve().is_relative_to(path.resolve()) for place in way)


def unreadable(
    root: Place, paths: Sequence[Place], progress: Progress | None
) -> list[UnreadableImageError]:
    """What is wrong with those files that are no images, found without decoding pixels. What lies
    elsewhere is read once for this and for its digest, and not again while it stays the same.
    `root`: whose cache of digests it is."""
    if any(isinstance(path, str) for path in paths):
        return examined(root, paths, progress)

    def problem(path: Place) -> UnreadableImageError | None:
        try:
            check(path)
        except UnreadableImageError as error:
            return error
        return None

    problems = results_of(problem, paths, _THREADS, progress)
    return [error for error in problems if error is not None]


def missing(paths: Sequence[Path], progress: Progress | None) -> list[Path]:
    """Those that are not there."""
    exist = results_of(os.path.isfile, paths, _THREADS, progress)
    return [path for path, exists in zip(paths, exist, strict=True) if not exists]

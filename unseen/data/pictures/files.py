"""Pictures in files: what every data set shares that knows the places of its pictures (`containers.
places`: paths, addresses, items of a tar or a table) and their labels."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from unseen import addresses
from unseen.addresses import Place
from unseen.contracts import Annotations, IntArray, Progress
from unseen.data.base import Described, class_counts, lone_classes
from unseen.data.containers import places
from unseen.data.pictures.boxes import inside, mark
from unseen.data.pictures.crops import Picture
from unseen.data.pictures.decode import (
    Box,
    PictureFile,
    UnreadablePictureError,
    check,
    decode,
    is_picture,
)
from unseen.data.pictures.item_digests import examined, file_digests, numbered
from unseen.data.pictures.prefetch import prefetch

_SAMPLED_BYTES = 1 << 14  # of each end of a file, for the fingerprint of 0.1
_THREADS = 8


class PictureFiles:
    """A base to build on: places, labels, and the part of each picture that counts: `boxes` [n, 4]
    hold left, top, right, bottom in pixels; a negative right edge means the whole picture. `base`:
    where the paths in ids begin. `notes`: what was left out or decided, in sentences."""

    def __init__(self, root: Place, name: str, paths: Sequence[Place], facts: Described) -> None:
        self.root, self.base, self.name = root, root, name
        self._paths = list(paths)
        self.labels, self.label_names = facts.labels, facts.label_names
        self.official_test_classes = facts.test_classes
        self.annotations: Annotations = facts.annotations
        self.group_names = facts.group_names
        self.boxes: IntArray | None = None
        self.skipped: list[UnreadablePictureError] = []
        self.notes: list[str] = []
        self._digests: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> Place:
        return self._paths[index]

    def picture(self, index: int) -> Image.Image:
        box = self.box(index)
        if box is None:
            return decode(self._paths[index])
        return Image.fromarray(self.opened(index).pixels())

    def opened(self, index: int) -> Picture:
        """The picture before it is decoded; see `PictureFile`."""
        box = self.box(index)
        if box is None:
            return PictureFile(self._paths[index])
        return inside(self._paths[index], box)

    def describe(self) -> dict[str, Any]:
        counts = class_counts(self.labels, self.label_names) | lone_classes(
            self.labels, self.label_names
        )
        return counts | {
            "unreadable files": len(self.skipped),
            "unreadable": [error.line for error in self.skipped],
            "notes": self.notes,
        }

    def item_ids(self) -> list[str]:
        """The path below `base`, or the name in a container, and the box where there is one; what
        is listed twice gets a number."""
        return list(self._ids)

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of each file, with its box: parts of one picture are no copies of each other."""
        if self._digests is None:
            found = file_digests(self.root, self._paths, progress)
            for index in range(len(self) if self.boxes is not None else 0):
                found[index] = hashlib.sha256(found[index] + self._mark(index).encode()).digest()
            self._digests = found
        return list(self._digests)

    def fingerprint(self) -> str:
        """Hashes names, labels and the content of every file."""
        sentences = [self._ids, self.labels.tolist(), [str(name) for name in self.label_names]]
        digest = hashlib.sha256(json.dumps(sentences).encode())
        digest.update(b"".join(self.digests()))
        return digest.hexdigest()

    def fingerprint_of_0_1(self) -> str:
        """As version 0.1 made it, from file sizes and both ends of every file: its runs store no
        items, and are known by it."""
        digest = hashlib.sha256()
        contents = prefetch(_sample, self._paths, _THREADS)
        for path, label, content in zip(self._paths, self.labels, contents, strict=True):
            digest.update(os.fsencode(Path(os.path.relpath(path, self.root)).as_posix()))
            digest.update(b"\0%d\0" % label + content)
        if self.boxes is not None:
            digest.update(self.boxes.tobytes())
        return digest.hexdigest()

    @cached_property
    def _ids(self) -> list[str]:
        base = os.path.join(self.base, "")

        def name(index: int) -> str:
            path = self._paths[index]
            return _below(base, path).replace(os.sep, "/") + self._mark(index)

        return numbered(name(index) for index in range(len(self)))

    def box(self, index: int) -> Box | None:
        """Left, top, right, bottom; None: the whole picture counts."""
        if self.boxes is None or self.boxes[index, 2] < 0:
            return None
        left, top, right, bottom = self.boxes[index].clip(min=0).tolist()
        return left, top, right, bottom

    def _mark(self, index: int) -> str:
        return mark(self.box(index))


def _below(base: str, place: Place) -> str:
    path = os.fspath(place)
    if isinstance(place, str) and (inner := places.name_in(place)):
        return inner
    if path.startswith(base):
        return path[len(base) :]
    return path if isinstance(place, str) else os.path.relpath(path, base)


def folders_of(path: Place, root: Place) -> tuple[str, ...]:
    """The folders between a root and a picture below it."""
    if isinstance(path, str):
        return tuple(path.removeprefix(str(root).rstrip("/") + "/").split("/")[:-1])
    return path.relative_to(root).parts[:-1]


def pictures_at(root: Place) -> Sequence[Place]:
    """Every picture file below a folder or an address, sorted."""
    if isinstance(root, Path):
        return pictures_in(root)
    return [place for place in addresses.below(root) if is_picture(addresses.name_of(place))]


def pictures_in(folder: Path) -> list[Path]:
    """Every picture file below a folder, sorted."""
    return sorted(
        parent / name for parent, _, files in walk(folder) for name in files if is_picture(name)
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
) -> list[UnreadablePictureError]:
    """What is wrong with those files that are no pictures, found without decoding pixels. What lies
    elsewhere is read once for this and for its digest, and not again while it stays the same.
    `root`: whose cache of digests it is."""
    if any(isinstance(path, str) for path in paths):
        return examined(root, paths, progress)

    def problem(path: Place) -> UnreadablePictureError | None:
        try:
            check(path)
        except UnreadablePictureError as error:
            return error
        return None

    problems = []
    for done, error in enumerate(prefetch(problem, paths, _THREADS), start=1):
        if error is not None:
            problems.append(error)
        if progress:
            progress(done, len(paths))
    return problems


def missing(paths: Sequence[Path], progress: Progress | None) -> list[Path]:
    """Those that are not there."""
    absent = []
    for done, there in enumerate(prefetch(os.path.isfile, paths, _THREADS), start=1):
        if not there:
            absent.append(paths[done - 1])
        if progress and (done % 256 == 0 or done == len(paths)):
            progress(done, len(paths))
    return absent


def _sample(path: Place) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(_SAMPLED_BYTES)
        file.seek(max(0, size - _SAMPLED_BYTES))
        return b"%d\0" % size + head + file.read(_SAMPLED_BYTES)

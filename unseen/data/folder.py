"""`folder`: your own pictures, one sub-folder per class: `root/<class>/**/*.jpg`.

Classes are the sub-folders in alphabetical order; folders inside a class belong to it. Hidden
files and macOS's `._*` companions are passed over. Files that are no pictures in spite of their
name are found when the data set is made, left out, and named by `describe()`; with `strict` the
first one is an error.
"""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from unseen.contracts import IntArray
from unseen.data.pictures.decode import PictureFile, UnreadablePictureError, check, decode

Progress = Callable[[int, int], None]  # (done, total)

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
MIN_CLASSES = 4  # two to train on, one to validate, one to test
_SAMPLED_BYTES = 1 << 14  # of each end of a file, for the fingerprint
_THREADS = 8


class Folder:
    """root: the folder of class folders. strict: an unreadable file is an error, not a note."""

    official_test_classes: IntArray | None = None

    def __init__(
        self, root: str | Path, strict: bool = False, progress: Progress | None = None
    ) -> None:
        self.root = Path(root)
        self.name = self.root.resolve().name
        candidates = _pictures_by_class(self.root)
        self.skipped = _unreadable([p for ps in candidates.values() for p in ps], progress)
        if strict and self.skipped:
            raise self.skipped[0]
        damaged = {error.path for error in self.skipped}
        kept = {c: [p for p in ps if p not in damaged] for c, ps in candidates.items()}
        kept = {name: paths for name, paths in kept.items() if paths}
        self._refuse_few(kept)
        self.label_names = list(kept)
        self._paths = [path for paths in kept.values() for path in paths]
        sizes = [len(paths) for paths in kept.values()]
        self.labels: IntArray = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> Path:
        return self._paths[index]

    def picture(self, index: int) -> Image.Image:
        return decode(self._paths[index])

    def opened(self, index: int) -> PictureFile:
        """The picture before it is decoded; see `PictureFile`."""
        return PictureFile(self._paths[index])

    def describe(self) -> dict[str, Any]:
        counts = np.bincount(self.labels)
        return {
            "items": len(self),
            "classes": len(self.label_names),
            "smallest class": int(counts.min()),
            "largest class": int(counts.max()),
            "classes with one picture": int((counts == 1).sum()),
            "unreadable files": len(self.skipped),
            "unreadable": [str(error.path) for error in self.skipped],
        }

    def fingerprint(self) -> str:
        """Hashes names, labels, file sizes and both ends of every file: quick on large folders, and
        no picture is re-encoded without changing its size or its ends."""
        digest = hashlib.sha256()
        with ThreadPoolExecutor(_THREADS) as pool:
            contents = pool.map(_sample, self._paths)
            for path, label, content in zip(self._paths, self.labels, contents, strict=True):
                digest.update(os.fsencode(path.relative_to(self.root).as_posix()))
                digest.update(b"\0%d\0" % label + content)
        return digest.hexdigest()

    def _refuse_few(self, kept: dict[str, list[Path]]) -> None:
        if not kept:
            first = self.skipped[0]
            raise ValueError(
                f"none of the {len(self.skipped)} pictures under {self.root} can be read; "
                f"the first: {first.path} ({first.reason})"
            )
        if len(kept) < MIN_CLASSES:
            raise ValueError(
                f"{self.root} has {len(kept)} classes of readable pictures ({', '.join(kept)}); "
                f"at least {MIN_CLASSES} are needed to train and test on different ones"
            )


def _pictures_by_class(root: Path) -> dict[str, list[Path]]:
    """The picture files of every class folder that has some, sorted."""
    layout = f"expected {root}/<class>/<picture>.jpg (or {', '.join(sorted(SUFFIXES - {'.jpg'}))})"
    if not root.exists():
        raise FileNotFoundError(f"no such folder: {root}; {layout}")
    if not root.is_dir():
        raise ValueError(f"{root} is a file, not a folder; {layout}")
    entries = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
    folders = [entry for entry in entries if entry.is_dir()]
    found = {folder.name: pictures_in(folder) for folder in folders}
    found = {name: paths for name, paths in found.items() if paths}
    if not found:
        files = [entry for entry in entries if not entry.is_dir()]
        loose = sum(is_picture(entry.name) for entry in files)
        raise ValueError(
            f"no pictures in class folders under {root}; {layout}, found {len(folders)} folders "
            f"without pictures and {len(files)} files, {loose} of them pictures"
        )
    return found


def pictures_in(folder: Path) -> list[Path]:
    paths = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent, name) for name in files if is_picture(name)]
    return sorted(paths)


def is_picture(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def _unreadable(paths: list[Path], progress: Progress | None) -> list[UnreadablePictureError]:
    def problem(path: Path) -> UnreadablePictureError | None:
        try:
            check(path)
        except UnreadablePictureError as error:
            return error
        return None

    problems = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for done, error in enumerate(pool.map(problem, paths), start=1):
            if error is not None:
                problems.append(error)
            if progress:
                progress(done, len(paths))
    return problems


def _sample(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(_SAMPLED_BYTES)
        file.seek(max(0, size - _SAMPLED_BYTES))
        return b"%d\0" % size + head + file.read(_SAMPLED_BYTES)

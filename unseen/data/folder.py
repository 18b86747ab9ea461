"""`folder`: your own pictures, one sub-folder per class: `root/<class>/**/*.jpg`.

Classes are the sub-folders in alphabetical order; folders inside a class belong to it. Hidden
files and macOS's `._*` companions are passed over. Files that are no pictures in spite of their
name are found when the data set is made, left out, and named by `describe()`; with `strict` the
first one is an error.
"""

from pathlib import Path

import numpy as np

from unseen.contracts import Annotations, Progress
from unseen.data.base import MIN_CLASSES, Described
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.data.pictures.files import (
    SUFFIXES,
    PictureFiles,
    is_picture,
    pictures_in,
    unreadable,
)


class Folder(PictureFiles):
    """root: the folder of class folders. strict: an unreadable file is an error, not a note."""

    def __init__(
        self, root: str | Path, strict: bool = False, progress: Progress | None = None
    ) -> None:
        root = Path(root)
        candidates = _pictures_by_class(root)
        skipped = unreadable([p for ps in candidates.values() for p in ps], progress)
        if strict and skipped:
            raise skipped[0]
        damaged = {error.path for error in skipped}
        kept = {c: [p for p in ps if p not in damaged] for c, ps in candidates.items()}
        kept = {name: paths for name, paths in kept.items() if paths}
        _refuse_few(root, kept, skipped)
        sizes = [len(paths) for paths in kept.values()]
        labels = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        paths = [path for paths in kept.values() for path in paths]
        told = Described(labels, list(kept), None, Annotations())
        super().__init__(root, root.resolve().name, paths, told)
        self.skipped = skipped


def _refuse_few(
    root: Path, kept: dict[str, list[Path]], skipped: list[UnreadablePictureError]
) -> None:
    if not kept:
        raise ValueError(
            f"none of the {len(skipped)} pictures under {root} can be read; "
            f"the first: {skipped[0].line}"
        )
    if len(kept) < MIN_CLASSES:
        raise ValueError(
            f"{root} has {len(kept)} classes of readable pictures ({', '.join(kept)}); "
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

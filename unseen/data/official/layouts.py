"""Lists and class folders as the benchmarks' authors, and those who copy them, lay them out."""

from collections.abc import Sequence
from pathlib import Path

from unseen.data.pictures.files import pictures_in

_COPIES = ("train", "test", "valid", "val")


def below(root: Path, file: str, folders: Sequence[str] = ()) -> Path | None:
    """A file in the root or in one of the folders it may have been unpacked into."""
    places = [root, *(root / name for name in folders)]
    return next((place / file for place in places if (place / file).exists()), None)


def rows(file: Path, columns: int, skip: int = 0) -> list[list[str]]:
    """The words of each line after the first `skip`; a line with too few or many is named."""
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if number <= skip or not words:
            continue
        if len(words) != columns:
            raise ValueError(f"{file}, line {number}: expected {columns} columns, got {len(words)}")
        found.append(words)
    return found


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Pictures by class, from class folders in the root, in `images`, or in `train` and `test`
    (each with all classes, as copies for classification have them), sorted by class."""
    if (root / "images").is_dir():
        root = root / "images"
    parts = [root / name for name in _COPIES if (root / name).is_dir()] or [root]
    found: dict[str, list[Path]] = {}
    for part in parts:
        for folder in part.iterdir():
            if folder.is_dir() and not folder.name.startswith("."):
                found.setdefault(folder.name, []).extend(pictures_in(folder))
    return {name: sorted(found[name], key=lambda path: path.name) for name in sorted(found)}


def class_names(root: Path) -> set[str]:
    """The names of the class folders, without looking into them; none where there is no folder."""
    if not root.is_dir():
        return set()
    if (root / "images").is_dir():
        root = root / "images"
    parts = [root / name for name in _COPIES if (root / name).is_dir()] or [root]
    return {entry.name for part in parts for entry in part.iterdir() if entry.is_dir()}

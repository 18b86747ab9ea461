"""Lists and class folders as the benchmarks' authors, and those who copy them, lay them out."""

from collections.abc import Sequence
from pathlib import Path

from unseen.data.images.image_files import images_in

_COPIES = ("train", "test", "valid", "val")


def below(root: Path, file: str, folders: Sequence[str] = ()) -> Path | None:
    """A file in the root or in one of the folders it may have been unpacked into."""
    places = [root, *(root / name for name in folders)]
    return next((place / file for place in places if (place / file).exists()), None)


def needed(root: Path, file: str, folders: Sequence[str] = ()) -> Path:
    """The same of a file that must be there."""
    place = below(root, file, folders)
    if place is None:
        raise ValueError(f"{file} is missing")
    return place


def rows(file: Path, columns: int, skip: int = 0) -> list[list[str]]:
    """The words of each line after the first `skip`; a line with too few or many is named."""
    result = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if number <= skip or not words:
            continue
        if len(words) != columns:
            raise ValueError(f"{file}, line {number}: expected {columns} columns, got {len(words)}")
        result.append(words)
    return result


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Images by class, from class folders in the root, in `images`, or in `train` and `test`
    (each with all classes, as copies for classification have them), sorted by class."""
    result: dict[str, list[Path]] = {}
    for folder in _folders(root):
        if not folder.name.startswith("."):
            result.setdefault(folder.name, []).extend(images_in(folder))
    return {name: sorted(result[name], key=lambda path: path.name) for name in sorted(result)}


def class_names(root: Path) -> set[str]:
    """The names of the class folders, without opening them; none where there is no folder."""
    return {folder.name for folder in _folders(root)} if root.is_dir() else set()


def _folders(root: Path) -> list[Path]:
    if (root / "images").is_dir():
        root = root / "images"
    copies = [root / name for name in _COPIES if (root / name).is_dir()] or [root]
    return [entry for copy in copies for entry in copy.iterdir() if entry.is_dir()]

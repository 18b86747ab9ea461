"""Data sets whose images lie in a few large files: their columns and the places of their images
as one table, which `table` reads like any other."""

from abc import abstractmethod
from typing import NamedTuple

from unseen.core import uris
from unseen.core.uris import Place
from unseen.data.containers import locations
from unseen.data.folder import repeated
from unseen.data.images.table_file import Columns
from unseen.data.table import Listed

PATH, LABEL, SPLIT = "path", "label", "split"


class SplitFile(NamedTuple):
    """A file of images, and the part of the data it is called (train, test), if it is."""

    file: Place
    name: str = ""


class Contained(Listed):
    """root: the file, or the folder of files."""

    def read(self, file: Place) -> tuple[Columns, list[str]]:
        return listing(self.files(file))

    @classmethod
    @abstractmethod
    def files(cls, root: Place) -> list[SplitFile]:
        """The files that hold the images, in their order."""


def listing(files: list[SplitFile]) -> tuple[Columns, list[str]]:
    """The columns of all files one below the other, with the places of the images as `path`; and
    what there is to say of their parts."""
    tables: list[tuple[int, Columns]] = []
    for file, split in files:
        container = locations.container(file)
        columns = dict(container.columns())
        external_paths = container.external_paths
        columns[PATH] = [
            external_paths.get(name) or locations.item(file, name) for name in container.names
        ]
        if split and SPLIT not in columns:
            columns[SPLIT] = [split] * len(container.names)
        tables.append((len(container.names), columns))
    names = dict.fromkeys(name for _, columns in tables for name in columns)
    joined = {
        name: [word for rows, columns in tables for word in columns.get(name) or [""] * rows]
        for name in names
    }
    named = all(split for _, split in files) and LABEL in joined
    note = repeated(joined[LABEL], joined[SPLIT]) if named else None
    if note is None:
        return joined, []
    del joined[SPLIT]
    return joined, [note]


def files_of(root: Place) -> list[Place]:
    """What lies in a folder of files; nothing of one with folders in it, which may be classes."""
    if isinstance(root, str):
        result = uris.below(root)
        return list(result) if all(uris.parent(f) == root.rstrip("/") for f in result) else []
    if not root.is_dir():
        return []
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    return [] if any(entry.is_dir() for entry in entries) else list(entries)

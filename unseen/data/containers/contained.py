"""Data sets whose pictures lie in a few large files: their columns and the places of their pictures
as one table, which `table` reads like any other."""

from abc import abstractmethod
from typing import NamedTuple

from unseen import addresses
from unseen.addresses import Place
from unseen.data.containers import places
from unseen.data.folder import repeated
from unseen.data.pictures.table_file import Columns
from unseen.data.table import Listed

PATH, LABEL, SPLIT = "path", "label", "split"


class Part(NamedTuple):
    """A file of pictures, and the part of the data it is called (train, test), if it is."""

    file: Place
    name: str = ""


class Contained(Listed):
    """root: the file, or the folder of files."""

    def read(self, file: Place) -> tuple[Columns, list[str]]:
        return listing(self.files(file))

    @classmethod
    @abstractmethod
    def files(cls, root: Place) -> list[Part]:
        """The files that hold the pictures, in their order."""


def listing(files: list[Part]) -> tuple[Columns, list[str]]:
    """The columns of all files one below the other, with the places of the pictures as `path`; and
    what there is to say of their parts."""
    held: list[tuple[int, Columns]] = []
    for file, part in files:
        container = places.container(file)
        columns = dict(container.columns())
        outside = container.outside
        columns[PATH] = [outside.get(name) or places.item(file, name) for name in container.names]
        if part and SPLIT not in columns:
            columns[SPLIT] = [part] * len(container.names)
        held.append((len(container.names), columns))
    names = dict.fromkeys(name for _, columns in held for name in columns)
    joined = {
        name: [word for rows, columns in held for word in columns.get(name) or [""] * rows]
        for name in names
    }
    named = all(part for _, part in files) and LABEL in joined
    note = repeated(joined[LABEL], joined[SPLIT]) if named else None
    if note is None:
        return joined, []
    del joined[SPLIT]
    return joined, [note]


def files_of(root: Place) -> list[Place]:
    """What lies in a folder of files; nothing of one with folders in it, which may be classes."""
    if isinstance(root, str):
        found = addresses.below(root)
        return list(found) if all(addresses.parent(f) == root.rstrip("/") for f in found) else []
    if not root.is_dir():
        return []
    entries = [entry for entry in root.iterdir() if not entry.name.startswith(".")]
    return [] if any(entry.is_dir() for entry in entries) else list(entries)

"""Images of an index for elsewhere: a table of them, or an archive of their files.

The archive is written while it is read, a piece at a time, and holds the files as they are, in a
folder per label, with the table (`images.csv`). Names in it are made of letters, digits and - . _
alone, so that unpacking stays in its folder whatever a label is.
"""

import io
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from unseen.core.files import sha256
from unseen.data.images.table_file import write_csv
from unseen.search.index import Index

PIECE = 1 << 20  # bytes
LONGEST = 50  # characters of a name
HEADS = ("id", "name", "label", "file")


def table(index: Index, ids: Sequence[int]) -> str:
    """id, name, label, and the name in the archive, as CSV."""
    known = [index.image(id) for id in ids]
    rows = [(p.id, Path(p.path).name, p.label or "", place_of(index, p.id)) for p in known]
    lines = io.StringIO()
    write_csv(lines, [HEADS, *rows])
    return lines.getvalue()


def place_of(index: Index, id: int) -> str:
    """Where an image lies in the archive."""
    known = index.image(id)
    path, folder = Path(known.path), known.label or "without label"
    name = f"{id}-{path.stem[:LONGEST]}{path.suffix[:LONGEST]}"
    return f"{_plain(folder[:LONGEST])}/{_plain(name)}"


def size_of(index: Index, ids: Sequence[int]) -> int:
    """Bytes of the files that are still there."""
    paths = (Path(index.image(id).path) for id in ids)
    return sum(path.stat().st_size for path in paths if path.exists())


def archive(index: Index, ids: Sequence[int]) -> Iterator[bytes]:
    """A ZIP file in pieces. Of a file that is gone, or is not what was embedded, there is the row
    of the table alone: a received index names any file, and only what it knows may leave."""
    pieces = _Pieces()
    with zipfile.ZipFile(pieces, "w", zipfile.ZIP_STORED) as zipped:
        zipped.writestr(_entry("images.csv"), table(index, ids))
        for id in ids:
            metadata = index.metadata(id)
            path = Path(metadata.path)
            if not path.is_file() or sha256(path) != metadata.digest:
                continue
            entry = _entry(place_of(index, id))
            with path.open("rb") as source, zipped.open(entry, "w", force_zip64=True) as target:
                while piece := source.read(PIECE):
                    target.write(piece)
                    yield pieces.taken()
    yield pieces.taken()


class _Pieces(io.RawIOBase):
    """A file that is written to and never gone back in; what was written is taken away."""

    def __init__(self) -> None:
        self.pending = bytearray()

    def write(self, content: Any) -> int:
        self.pending += content
        return len(content)

    def taken(self) -> bytes:
        content, self.pending = bytes(self.pending), bytearray()
        return content


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, time.gmtime()[:6])


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip(".") or "_"

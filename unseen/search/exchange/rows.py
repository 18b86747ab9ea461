"""What goes from an index to elsewhere and comes back: a header, and rows by the thousand.

Every format writes and reads these two; ids, paths, labels, metadata, thumbnails and the bits of
the vectors are the same after the way there and back. What was removed from the index is not in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from unseen.core.contracts import Progress
from unseen.core.names import by_front_end
from unseen.search import manifest as manifests
from unseen.search.index import Ids, Index
from unseen.search.manifest import Entry, ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

CHUNK = 1024  # rows at once


class Header(Entry):
    """Whose vectors they are, how many, and the first id that was never given."""

    model: ModelEntry
    count: int
    next_id: int

    @classmethod
    def read(cls, text: str | bytes | None, source: object) -> "Header":
        """Of something that this package wrote; ValueError for anything else."""
        try:
            return cls.model_validate_json(text or b"")
        except ValidationError as error:
            raise ValueError(f"{source} was not written by `unseen index export`") from error


@dataclass(frozen=True)
class Rows:
    """Some images, in the order of the index."""

    ids: Ids  # [n]
    vectors: NDArray[np.float32]  # [n, D]
    metadata: Sequence[Metadata]
    thumbnails: Sequence[bytes]


@dataclass(frozen=True)
class Exported:
    """What a format gives back: the header, and the rows one chunk after the other."""

    header: Header
    chunks: Iterator[Rows]


def header_of(index: Index) -> Header:
    known = index.manifest
    return Header(model=known.model, count=len(index), next_id=known.next_id)


def rows_of(index: Index, progress: Progress | None = None) -> Iterator[Rows]:
    """Everything that is in an index now."""
    every, ids = index.every(), index.ids
    for start in range(0, len(ids), CHUNK):
        some = ids[start : start + CHUNK]
        metadata = [metadata for _, (_, metadata) in zip(some, every, strict=False)]
        yield Rows(
            some, index.vectors(some), metadata, [index.thumbnail(id) for id in some.tolist()]
        )
        if progress is not None:
            progress(start + len(some), len(ids))


def import_index(exported: Exported, out: Path, progress: Progress | None = None) -> Index:
    """An index of what was exported; stopped or killed, the same call goes on."""
    header, exists = exported.header, (out / manifests.NAME).exists()
    new = Writer.open(out) if exists else Writer.create(out, header.model, first_id=header.next_id)
    with new as writer:
        if writer.manifest.model != header.model or writer.manifest.next_id != header.next_id:
            raise ValueError(
                f"{out} is another index: choose another {by_front_end('--out', 'out')}"
            )
        known, done = set(writer.index().ids.tolist()), 0
        for rows in exported.chunks:
            writer.add([image for image in images_of(rows) if image.id not in known])
            done += len(rows.ids)
            if progress is not None:
                progress(done, header.count)
        index = writer.index()
        if len(index) != header.count:
            raise ValueError(
                f"{done:,} rows came and {header.count:,} were exported: it is not whole, export "
                "it again"
            )
        writer.refresh_backend()
    return Index.open(out)


def images_of(rows: Rows) -> list[NewImage]:
    columns: Iterable[tuple[Any, ...]] = zip(
        rows.ids.tolist(), rows.vectors, rows.metadata, rows.thumbnails, strict=True
    )
    return [NewImage(metadata, vector, small, id) for id, vector, metadata, small in columns]

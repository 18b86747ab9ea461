"""An index as an open table, a Parquet file or a table of LanceDB, and back.

    id         int64
    path       string
    label      string, null where nobody said
    num_bytes  int64, with `modified` (nanoseconds) and `mark` (int64): the state of the file
    digest     string, SHA-256 of what was embedded
    box        list of four int64, null for the whole image
    compatible bool: the vector comes from an older model, by a map (docs/upgrade.md)
    columns    string, JSON: what else is known of the image
    vector     float32 [D], a list of fixed size
    thumbnail  binary, a WebP file

Rows go as Arrow's record batches, by the thousand; the header is in the schema's metadata under
`unseen`. Ids, paths, labels, metadata, thumbnails and the bits of the vectors are the same after
the way there and back. What was removed from the index is not in it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from unseen.core.contracts import Progress
from unseen.core.extras import install_command
from unseen.core.files import replacing
from unseen.core.names import by_front_end
from unseen.data.images.table_file import arrow, parquet_of
from unseen.search import manifest as manifests
from unseen.search.index import Ids, Index
from unseen.search.manifest import Entry, ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

CHUNK = 1024  # rows at once
KEY = b"unseen"


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


def write_parquet(out: Path, header: Header, chunks: Iterator[Rows]) -> None:
    """The whole file or none, a row group per chunk."""
    schema, (_, parquet) = schema_of(header), arrow()
    with replacing(out) as aside, parquet.ParquetWriter(aside, schema) as file:
        for rows in chunks:
            file.write_batch(to_batch(rows, schema))


def read_parquet(source: Path) -> Exported:
    with parquet_of(source) as file:
        header = header_in(file.schema_arrow, source)
    return Exported(header, _chunks(source))


def _chunks(source: Path) -> Iterator[Rows]:
    with parquet_of(source) as file:
        yield from map(from_batch, file.iter_batches(CHUNK))


def write_lance(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """One version of a table in a folder or an object store, so all rows or none."""
    schema = schema_of(header)
    connect(out).create_table(table, (to_batch(rows, schema) for rows in chunks), schema=schema)


def read_lance(source: str, table: str) -> Exported:
    opened = connect(source).open_table(table)
    header = header_in(opened.schema, f"the table {table} of {source}")
    return Exported(header, map(from_batch, opened.search().to_batches(CHUNK)))


def connect(uri: str) -> Any:
    """LanceDB's connection."""
    os.environ.setdefault("LANCE_LOG", "error")  # it warns of tables that it makes
    try:
        import lancedb  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(f"LanceDB needs its package: {install_command('lance')}") from error
    return lancedb.connect(uri)


def schema_of(header: Header) -> Any:
    pa, _ = arrow()
    columns = [
        pa.field("id", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("label", pa.string()),
        pa.field("num_bytes", pa.int64()),
        pa.field("modified", pa.int64()),
        pa.field("mark", pa.int64()),
        pa.field("digest", pa.string()),
        pa.field("box", pa.list_(pa.int64())),
        pa.field("compatible", pa.bool_()),
        pa.field("columns", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), header.model.size)),
        pa.field("thumbnail", pa.binary()),
    ]
    return pa.schema(columns, metadata={KEY: header.model_dump_json().encode()})


def header_in(schema: Any, source: object) -> Header:
    header = Header.read((schema.metadata or {}).get(KEY), source)
    missing = [field.name for field in schema_of(header) if field.name not in schema.names]
    if missing:
        raise ValueError(f"{source} has no column {missing[0]}: export the index again")
    return header


def to_batch(rows: Rows, schema: Any) -> Any:
    pa, _ = arrow()
    flat = pa.array(np.ascontiguousarray(rows.vectors).ravel())
    metadata = {
        field.name: [getattr(each, field.name) for each in rows.metadata]
        for field in fields(Metadata)
    }
    columns = metadata | {
        "id": rows.ids,
        "columns": [json.dumps(dict(known)) for known in metadata["columns"]],
        "vector": pa.FixedSizeListArray.from_arrays(flat, rows.vectors.shape[1]),
        "thumbnail": list(rows.thumbnails),
    }
    arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_batch(batch: Any) -> Rows:
    ids = batch["id"].to_numpy(zero_copy_only=False)
    flat = batch["vector"].flatten().to_numpy(zero_copy_only=False)
    rows = batch.select([field.name for field in fields(Metadata)]).to_pylist()
    metadata = [
        Metadata(
            **row
            | {
                "box": tuple(row["box"]) if row["box"] else None,
                "columns": json.loads(row["columns"]),
            }
        )
        for row in rows
    ]
    return Rows(ids, flat.reshape(len(ids), -1), metadata, batch["thumbnail"].to_pylist())

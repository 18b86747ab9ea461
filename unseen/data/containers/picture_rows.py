"""A Parquet or Arrow file with pictures in a column: names, bytes, and the other columns as text.

Arrow files are mapped into memory, any row at once. Parquet cannot be read from the middle: it is
copied to Arrow once, in the cache folder, as `datasets` does.
"""

import hashlib
import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

from unseen import addresses
from unseen.addresses import Place
from unseen.data.pictures import stored
from unseen.data.pictures.table_file import PARQUET, arrow, parquet_of
from unseen.files import replacing

LABEL = "label"
_ROWS = 256  # copied at once
_NAMED = ("path", "file_name", "filename", "name", "key", "id")  # columns that may name a picture


class PictureRows:
    """file: `.parquet`, `.pq` or `.arrow`, with one column of pictures."""

    def __init__(self, file: Place) -> None:
        self.file = file
        here = _copied(file) if addresses.suffix(file) in PARQUET else Path(file)
        table = _mapped(here)
        column = _picture_column(table.schema, file)
        held = table[column]
        chunks = [chunk for chunk in held.chunks if len(chunk)]
        self._starts = [0, *accumulate(len(chunk) for chunk in chunks)]
        struct = _is_struct(held.type)
        self._bytes = [chunk.field("bytes") if struct else chunk for chunk in chunks]
        paths: list[Any] = [None] * len(held)
        if struct and held.type.get_field_index("path") >= 0:
            paths = [path for chunk in chunks for path in chunk.field("path").to_pylist()]
        self._told = _columns(table, column)
        self.names = _names(paths, self._told, len(held), addresses.name_of(file))
        self._row = {name: row for row, name in enumerate(self.names)}
        # pictures that lie beside the table: it has their paths alone
        self.outside = {
            self.names[row]: str(path)
            for row, path in enumerate(paths)
            if path and not self._buffer(row)[1]
        }

    def columns(self) -> dict[str, list[str]]:
        return self._told

    def num_bytes(self, name: str) -> int:
        buffer, valid = self._buffer(self._row[name])
        return len(buffer.as_buffer()) if valid else 0

    def read(self, name: str) -> bytes:
        buffer, valid = self._buffer(self._row[name])
        return bytes(buffer.as_buffer()) if valid else b""

    def _buffer(self, row: int) -> tuple[Any, bool]:
        chunk = bisect_right(self._starts, row) - 1
        scalar = self._bytes[chunk][row - self._starts[chunk]]
        return scalar, bool(scalar.is_valid)


def _picture_column(schema: Any, file: Place) -> str:
    found = pictures_in(schema)
    if len(found) != 1:
        which = f"several columns of pictures: {', '.join(found)}" if found else "no pictures"
        raise ValueError(f"{file} has {which} ({', '.join(schema.names)}): write it with one")
    return found[0]


def pictures_in(schema: Any) -> list[str]:
    """Columns of bytes, or of structs with them: what `datasets` calls Image."""
    kinds = arrow()[0].types
    told = {name for name, kind in features(schema).items() if kind.get("_type") == "Image"}
    if told & set(schema.names):
        return [name for name in schema.names if name in told]
    return [
        field.name
        for field in schema
        if kinds.is_binary(field.type)
        or kinds.is_large_binary(field.type)
        or _is_struct(field.type)
    ]


def features(schema: Any) -> dict[str, Any]:
    """What `datasets` wrote of its columns, by name."""
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        return dict(found["info"]["features"])
    except (ValueError, KeyError, TypeError):
        return {}


def _is_struct(kind: Any) -> bool:
    return bool(arrow()[0].types.is_struct(kind)) and kind.get_field_index("bytes") >= 0


def _columns(table: Any, pictures: str) -> dict[str, list[str]]:
    """Every plain column as text; numbers of a class become its name."""
    kinds, known, columns = arrow()[0].types, features(table.schema), {}
    for field in table.schema:
        kind = field.type
        if field.name == pictures or kinds.is_nested(kind) or kinds.is_binary(kind):
            continue
        names = known.get(field.name, {}).get("names")
        values = table[field.name].to_pylist()
        if names:
            values = [names[v] if v is not None and v >= 0 else None for v in values]
        columns[field.name] = ["" if value is None else str(value) for value in values]
    classes = [name for name in columns if known.get(name, {}).get("names")]
    if LABEL not in columns and len(classes) == 1:
        columns[LABEL] = columns.pop(classes[0])
    return columns


def _names(paths: list[str | None], told: dict[str, list[str]], rows: int, file: str) -> list[str]:
    """Of the first source that names every picture differently."""
    sources: list[list[Any]] = [paths, *(told[name] for name in _NAMED if name in told)]
    for names in sources:
        if all(names) and len(set(names)) == rows:
            return [str(name) for name in names]
    return [f"{file} row {row}" for row in range(rows)]


def _mapped(file: Path) -> Any:
    """The table of an Arrow file, of either format; its bytes stay on the disk."""
    pyarrow = arrow()[0]
    try:
        source = pyarrow.memory_map(str(file))
        try:
            return pyarrow.ipc.open_stream(source).read_all()
        except pyarrow.ArrowInvalid:
            return pyarrow.ipc.open_file(source).read_all()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file} is not a whole Arrow file: {error}") from error


def _copied(file: Place) -> Path:
    """A Parquet file as an Arrow one, made once."""
    key = hashlib.sha256(f"{file} {tuple(addresses.state(file))}".encode()).hexdigest()[:24]
    copy = stored.cache_folder() / "arrow" / f"{key}.arrow"
    if copy.exists():
        return copy
    pyarrow = arrow()[0]
    with (
        parquet_of(file) as source,
        replacing(copy) as aside,
        pyarrow.OSFile(str(aside), "wb") as sink,
        pyarrow.ipc.new_stream(sink, source.schema_arrow) as out,
    ):
        for batch in source.iter_batches(batch_size=_ROWS):
            out.write_batch(batch)
    return copy

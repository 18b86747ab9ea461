"""A Parquet or Arrow file with images in a column: names, bytes, and the other columns as text.

Arrow files are mapped into memory, any row at once. Parquet cannot be read from the middle: it is
copied to Arrow once, in the cache folder, as `datasets` does.
"""

import hashlib
import json
import struct
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

from unseen.core import read_limits, uris
from unseen.core.files import replacing
from unseen.core.uris import Place
from unseen.data.images import array_files
from unseen.data.images.table_file import PARQUET, arrow, parquet_of, values_of

LABEL = "label"
_ROWS = 256  # copied at once
_FILE = b"ARROW1"  # how Arrow's format with a footer begins
_OF_DICTIONARY = 2
_BATCHES = (_OF_DICTIONARY, 3)  # kinds of messages
_NAMED = ("path", "file_name", "filename", "name", "key", "id")  # columns that may name an image


class ImageRows:
    """file: `.parquet`, `.pq` or `.arrow`, with one column of images."""

    def __init__(self, file: Place) -> None:
        self.file = file
        here = _copied(file) if uris.suffix(file) in PARQUET else Path(file)
        table = _open_table(here)
        column = _image_column(table.schema, file)
        images = table[column]
        chunks = [chunk for chunk in images.chunks if len(chunk)]
        self._starts = [0, *accumulate(len(chunk) for chunk in chunks)]
        struct = _is_struct(images.type)
        self._bytes = [chunk.field("bytes") if struct else chunk for chunk in chunks]
        paths: list[Any] = [None] * len(images)
        if struct and images.type.get_field_index("path") >= 0:
            paths = [path for chunk in chunks for path in chunk.field("path").to_pylist()]
        self._text_columns = _columns(table, column)
        self.names = _names(paths, self._text_columns, len(images), uris.name_of(file))
        self._row = {name: row for row, name in enumerate(self.names)}
        # images that lie beside the table: it has their paths alone
        self.external_paths = {
            self.names[row]: str(path)
            for row, path in enumerate(paths)
            if path and not self._buffer(row)[1]
        }

    def columns(self) -> dict[str, list[str]]:
        return self._text_columns

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


def _image_column(schema: Any, file: Place) -> str:
    result = images_in(schema)
    if len(result) != 1:
        which = f"several columns of images: {', '.join(result)}" if result else "no images"
        raise ValueError(f"{file} has {which} ({', '.join(schema.names)}): write it with one")
    return result[0]


def images_in(schema: Any) -> list[str]:
    """Columns of bytes, or of structs with them: what `datasets` calls Image."""
    kinds = arrow()[0].types
    declared = {name for name, kind in features(schema).items() if kind.get("_type") == "Image"}
    if declared & set(schema.names):
        return [name for name in schema.names if name in declared]
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
        result = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        return dict(result["info"]["features"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _is_struct(kind: Any) -> bool:
    return bool(arrow()[0].types.is_struct(kind)) and kind.get_field_index("bytes") >= 0


def _columns(table: Any, images: str) -> dict[str, list[str]]:
    """Every plain column as text; numbers of a class become its name."""
    kinds, known, columns = arrow()[0].types, features(table.schema), {}
    for field in table.schema:
        kind = field.type
        if field.name == images or kinds.is_nested(kind) or kinds.is_binary(kind):
            continue
        names = known.get(field.name, {}).get("names")
        values = values_of(table[field.name])
        if names:
            values = [names[v] if v is not None and v >= 0 else None for v in values]
        columns[field.name] = ["" if value is None else str(value) for value in values]
    classes = [name for name in columns if known.get(name, {}).get("names")]
    if LABEL not in columns and len(classes) == 1:
        columns[LABEL] = columns.pop(classes[0])
    return columns


def _names(
    paths: list[str | None], columns: dict[str, list[str]], rows: int, file: str
) -> list[str]:
    """Of the first source that names every image differently."""
    sources: list[list[Any]] = [paths, *(columns[name] for name in _NAMED if name in columns)]
    for names in sources:
        if all(names) and len(set(names)) == rows:
            return [str(name) for name in names]
    return [f"{file} row {row}" for row in range(rows)]


def _open_table(file: Path) -> Any:
    """The table of an Arrow file, of either format; its bytes stay on the disk."""
    pyarrow = arrow()[0]
    try:
        source = pyarrow.memory_map(str(file))
        _refuse_compressed(file, pyarrow.memory_map(str(file)))
        try:
            table = pyarrow.ipc.open_stream(source).read_all()
        except pyarrow.ArrowInvalid:
            table = pyarrow.ipc.open_file(source).read_all()
        table.validate(full=True)  # its offsets are a stranger's
        read_limits.require(file, read_limits.ROW * table.num_rows, file.stat().st_size)
        return table
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file} is not a whole Arrow file: {error}") from error


def _refuse_compressed(file: Path, source: Any) -> None:
    """What is compressed inside cannot be mapped, and may be of any size when it is unpacked."""
    pyarrow = arrow()[0]
    if source.read(6) == _FILE:
        source.seek(8)
    else:
        source.seek(0)
    for message in pyarrow.ipc.MessageReader.open_stream(source):
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError(f"{file} is compressed inside, write it without compression")


def _is_compressed(message: bytes) -> bool:
    """By the header of a batch, a table of flatbuffers: whether its field 3 is there."""

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from(f"<{kind}", message, at)[0])

    def field(table: int, place: int) -> int:
        head = table - number("i", table)
        offset = 4 + 2 * place
        result = number("H", head + offset) if offset < number("H", head) else 0
        return table + result if result else 0

    def inner(place: int) -> int:
        return place + number("I", place)

    root = inner(0)
    kind = field(root, 1) and number("B", field(root, 1))
    if kind not in _BATCHES:
        return False
    batch = inner(field(root, 2))
    if kind == _OF_DICTIONARY:
        batch = inner(field(batch, 1))
    return bool(field(batch, 3))


def _copied(file: Place) -> Path:
    """A Parquet file as an Arrow one, made once."""
    key = hashlib.sha256(f"{file} {tuple(uris.state(file))}".encode()).hexdigest()[:24]
    copy = array_files.cache_folder() / "arrow" / f"{key}.arrow"
    if copy.exists():
        return copy
    pyarrow = arrow()[0]
    with (
        parquet_of(file) as source,
        replacing(copy) as aside,
        pyarrow.OSFile(str(aside), "wb") as logger,
        pyarrow.ipc.new_stream(logger, source.schema_arrow) as out,
    ):
        for batch in source.iter_batches(batch_size=_ROWS):
            out.write_batch(batch)
    return copy

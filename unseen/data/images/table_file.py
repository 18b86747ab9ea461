"""Tables on disk: CSV (also tab or semicolon separated) or Parquet, as columns of text.

A spreadsheet computes what begins with = + - @, a tab or a new line, whoever named it so. Such a
text is written to CSV with ' in front, and read without it; numbers stay as they are.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from unseen.core import uris
from unseen.core.extras import install_command
from unseen.core.files import replacing
from unseen.core.names import near_path
from unseen.core.uris import Place

EDGES = ("x_1", "y_1", "x_2", "y_2")  # columns of the part of an image that counts
PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", *PARQUET)
_SNIFFED = 1 << 16  # characters that decide on the separator
_COMPUTED = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")

Columns = dict[str, list[str]]


def read(path: Place) -> Columns:
    """Every column by its name; nothing is an empty text."""
    if isinstance(path, Path) and not path.exists():
        raise FileNotFoundError(f"no such file: {path}{near_path(path)}")
    columns = _read_parquet(path) if uris.suffix(path) in PARQUET else _read_csv(path)
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"{path} has no rows")
    return columns


def first_row(path: Place) -> int:
    """The number of the first row as people count: below the names of a CSV's columns."""
    return 1 if uris.suffix(path) not in SUFFIXES or uris.suffix(path) in PARQUET else 2


def write(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """The whole file or none."""
    with replacing(path) as aside:
        if path.suffix.lower() in PARQUET:
            pyarrow, parquet = arrow()
            parquet.write_table(pyarrow.table(dict(columns)), aside)
            return
        with aside.open("w", newline="", encoding="utf-8") as file:
            write_csv(file, [list(columns), *zip(*columns.values(), strict=True)])


def write_csv(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Rows whose texts a spreadsheet takes for texts."""
    lines = io.StringIO(newline="")
    csv.writer(lines).writerows([_safe_cell(cell) for cell in row] for row in rows)
    file.write(lines.getvalue().replace("\r\n", "\n"))  # \r in a cell was quoted


def _safe_cell(cell: Any) -> Any:
    if not isinstance(cell, str) or not _COMPUTED.match(cell):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _read_csv(path: Place) -> Columns:
    try:
        text = uris.read(path).decode("utf-8-sig")  # spreadsheets put a mark first
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error
    first = re.split(r"[\r\n]", text[:_SNIFFED], maxsplit=1)[0]
    separator = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        rows = list(lines)
    except csv.Error as error:
        raise ValueError(f"{path}, row {lines.line_num}: {error}") from error
    if not rows:
        raise ValueError(f"{path} is empty")
    head, body = [_own_text(name) for name in rows[0]], [row for row in rows[1:] if row]
    if len(set(head)) < len(head):
        raise ValueError(f"{path} has two columns of the same name: {', '.join(head)}")
    for number, row in enumerate(body, start=2):
        if len(row) != len(head):
            raise ValueError(
                f"{path}, row {number}: expected {len(head)} entries as in the first line, "
                f"got {len(row)}"
            )
    return {name: [_own_text(row[place]) for row in body] for place, name in enumerate(head)}


def _own_text(cell: str) -> str:
    text = cell.strip()
    return text.removeprefix("'") if _COMPUTED.match(text) else text


def read_arrow(path: Place) -> Any:
    """A Parquet file as pyarrow's table."""
    with parquet_of(path, whole=True) as file:
        return file.read()


@contextmanager
def parquet_of(path: Place, whole: bool = False) -> Iterator[Any]:
    """An opened Parquet file, which declares no more than it may (`read_limits`). whole: its rows
    will be in memory at once."""
    from unseen.data.images import parquet_sizes  # noqa: PLC0415 - of Parquet alone

    pyarrow, parquet = arrow()
    try:
        with uris.reading(path) as stream:
            file = parquet.ParquetFile(stream)
            parquet_sizes.check(stream, file, path, whole)
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        if getattr(error, "errno", None) is not None:  # of the system: no such file, no space
            raise
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error


def values_of(column: Any) -> list[Any]:
    """The values of pyarrow's column. Equal ones of a dictionary are one object; kinds in which a
    few bytes stand for many rows are refused."""
    kinds = arrow()[0].types
    kind = column.type
    if kinds.is_run_end_encoded(kind) or "view" in str(kind):
        raise ValueError(f"a column is {kind}: write it as plain values")
    if not kinds.is_dictionary(kind):
        return list(column.to_pylist())
    result: list[Any] = []
    for chunk in column.chunks:
        words = chunk.dictionary.to_pylist()
        result += [None if code is None else words[code] for code in chunk.indices.to_pylist()]
    return result


def _read_parquet(path: Place) -> Columns:
    table = read_arrow(path)
    return {
        name: ["" if value is None else str(value) for value in values_of(table[name])]
        for name in table.column_names
    }


def arrow() -> tuple[Any, Any]:
    """pyarrow, and its Parquet."""
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(f"Parquet needs pyarrow: {install_command('parquet')}") from error
    return pyarrow, parquet

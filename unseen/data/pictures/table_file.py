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

from unseen import addresses
from unseen.addresses import Place
from unseen.extras import install_command
from unseen.files import replacing
from unseen.names import near_path

EDGES = ("x_1", "y_1", "x_2", "y_2")  # columns of the part of a picture that counts
PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", *PARQUET)
_SNIFFED = 1 << 16  # characters that decide on the separator
_COMPUTED = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")

Columns = dict[str, list[str]]


def read(path: Place) -> Columns:
    """Every column by its name; nothing is an empty text."""
    if isinstance(path, Path) and not path.exists():
        raise FileNotFoundError(f"no such file: {path}{near_path(path)}")
    columns = _read_parquet(path) if addresses.suffix(path) in PARQUET else _read_csv(path)
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"{path} has no rows")
    return columns


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
        text = addresses.read(path).decode("utf-8-sig")  # spreadsheets put a mark first
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error
    first = re.split(r"[\r\n]", text[:_SNIFFED], maxsplit=1)[0]
    separator = max(",;\t", key=first.count)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
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
    with parquet_of(path) as file:
        return file.read()


@contextmanager
def parquet_of(path: Place) -> Iterator[Any]:
    """An opened Parquet file."""
    pyarrow, parquet = arrow()
    try:
        with addresses.reading(path) as file:
            yield parquet.ParquetFile(file)
    except (OSError, pyarrow.ArrowException) as error:
        if getattr(error, "errno", None) is not None:  # of the system: no such file, no space
            raise
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error


def _read_parquet(path: Place) -> Columns:
    table = read_arrow(path)
    return {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()]
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

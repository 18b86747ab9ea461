"""Tables on disk: CSV (also tab or semicolon separated) or Parquet, as columns of text."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.files import replacing

EDGES = ("x_1", "y_1", "x_2", "y_2")  # columns of the part of a picture that counts
PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", ".tsv", *PARQUET)
_SNIFFED = 1 << 16  # characters that decide on the separator

Columns = dict[str, list[str]]


def read(path: Path) -> Columns:
    """Every column by its name; nothing is an empty text."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    columns = _read_parquet(path) if path.suffix.lower() in PARQUET else _read_csv(path)
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"{path} has no rows")
    return columns


def write(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """The whole file or none."""
    with replacing(path) as aside:
        if path.suffix.lower() in PARQUET:
            arrow, parquet = _arrow()
            parquet.write_table(arrow.table(dict(columns)), aside)
            return
        with aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


def _read_csv(path: Path) -> Columns:
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark in front
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error
    first = text[:_SNIFFED].partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    if not rows:
        raise ValueError(f"{path} is empty")
    head, body = [name.strip() for name in rows[0]], [row for row in rows[1:] if row]
    if len(set(head)) < len(head):
        raise ValueError(f"{path} has two columns of the same name: {', '.join(head)}")
    for number, row in enumerate(body, start=2):
        if len(row) != len(head):
            raise ValueError(
                f"{path}, row {number}: expected {len(head)} entries as in the first line, "
                f"got {len(row)}"
            )
    return {name: [row[place].strip() for row in body] for place, name in enumerate(head)}


def _read_parquet(path: Path) -> Columns:
    arrow, parquet = _arrow()
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise ValueError(f"{path} is not a whole Parquet file: {error}") from error
    return {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()]
        for name in table.column_names
    }


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError("Parquet needs pyarrow: pip install 'unseen[parquet]'") from error
    return pyarrow, parquet

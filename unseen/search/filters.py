"""Which images an expression over their metadata means: `price < 20 and brand = 'x'`.

The columns of an index are a table of SQLite in memory, which is asked for the rows where the
expression is true. Expressions come from strangers too (the service): they compare columns and call
a few functions, whatever else SQLite can do is refused, and one that takes long is stopped.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from unseen.search.segment import Metadata

MOST_LETTERS = 1000
MOST_COLUMNS = 1000
SECONDS = 2.0  # of the processor
STEPS = 10_000  # of SQLite's machine, between looks at the clock
ID = "unseen id"  # no column of a table that people write
FUNCTIONS = set(
    "abs coalesce ifnull instr length like lower max min nullif round substr trim upper".split()  # noqa: SIM905
)
TEXT, NAME = re.compile(r"'(?:[^']|'')*'"), re.compile(r'"((?:[^"]|"")*)"')


class FilterError(ValueError):
    """What was given is no expression over the columns there are."""


class MetadataTable:
    """The metadata of an index, by column."""

    def __init__(self, images: Iterable[tuple[int, Metadata]]) -> None:
        rows: list[tuple[object, ...]] = []
        self.columns = ["file_name", "label"]  # whole paths stay on this side
        place = {"file_name": 1, "label": 2}  # by lower case: SQLite takes Price and price for one
        for id, metadata in images:
            row: list[object] = [id, PurePath(metadata.path).name, metadata.label]
            for name, value in metadata.columns.items():
                if name.lower() not in place:
                    self.columns.append(name)
                    place[name.lower()] = len(self.columns)
                row += [None] * (place[name.lower()] + 1 - len(row))
                row[place[name.lower()]] = value
            rows.append(tuple(row))
        if len(self.columns) > MOST_COLUMNS:
            raise ValueError(f"filters take {MOST_COLUMNS} columns, got {len(self.columns)}")
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._lock, self._selects, self._until = threading.Lock(), 0, 0.0
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in (ID, *self.columns))
        width = len(self.columns) + 1
        self._connection.execute(f"CREATE TABLE images ({names})")
        marks = ", ".join("?" * width)
        padded = (row + (None,) * (width - len(row)) for row in rows)
        self._connection.executemany(f"INSERT INTO images VALUES ({marks})", padded)
        self._connection.set_authorizer(self._allowed)
        self._connection.set_progress_handler(lambda: time.thread_time() > self._until, STEPS)

    def ids(self, expression: str) -> NDArray[np.int64]:
        """Of the images it is true of, rising; FilterError for what is no expression."""
        try:
            self._require_expression(expression)
            with self._lock:
                self._selects, self._until = 0, time.thread_time() + SECONDS
                query = f'SELECT "{ID}" FROM images WHERE (\n{expression}\n)'
                result = self._connection.execute(query).fetchall()
        except (sqlite3.Error, ValueError) as error:
            why = f"it took more than {SECONDS:g} s" if "interrupted" in str(error) else error
            known = ", ".join(self.columns[:20])
            raise FilterError(
                f'cannot filter by {expression[:80]!r}: {why}. Such as "price < 20 and brand = '
                f"'x'\"; columns are {known}"
            ) from error
        return np.sort(np.array([id for (id,) in result], dtype=np.int64))

    def _require_expression(self, expression: str) -> None:
        if not expression.strip() or len(expression) > MOST_LETTERS:
            raise ValueError(f"it must have 1 to {MOST_LETTERS} letters")
        rest, known = TEXT.sub("''", expression), {name.lower() for name in self.columns}
        for name in NAME.findall(rest):  # one that it does not know SQLite takes for a text
            if name.replace('""', '"').lower() not in known:
                raise ValueError(f"no such column: {name}")
        depth = 0
        for sign in NAME.sub("", rest):
            depth += (sign == "(") - (sign == ")")
            if depth < 0:
                raise ValueError("a bracket is closed that was not opened")

    def _allowed(self, action: int, first: str | None, second: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_SELECT:
            self._selects += 1
            return sqlite3.SQLITE_OK if self._selects == 1 else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            is_known = (second or "").lower() in FUNCTIONS
            return sqlite3.SQLITE_OK if is_known else sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK if action == sqlite3.SQLITE_READ else sqlite3.SQLITE_DENY

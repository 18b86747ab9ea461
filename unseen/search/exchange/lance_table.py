"""An index as a table of LanceDB, in a folder or an object store: the columns of `arrow.py`."""

import os
from collections.abc import Iterator
from typing import Any

from unseen.core.extras import install_command
from unseen.search.exchange.arrow import from_batch, header_in, schema_of, to_batch
from unseen.search.exchange.rows import CHUNK, Exported, Header, Rows


def write(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """One version of a table, so all rows or none."""
    schema = schema_of(header)
    connect(out).create_table(table, (to_batch(rows, schema) for rows in chunks), schema=schema)


def read(source: str, table: str) -> Exported:
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

"""An index as one Parquet file, with the columns of `arrow.py`, a row group per chunk."""

from collections.abc import Iterator
from pathlib import Path

from unseen.core.files import replacing
from unseen.data.images.table_file import arrow, parquet_of
from unseen.search.exchange.arrow import from_batch, header_in, schema_of, to_batch
from unseen.search.exchange.rows import CHUNK, Exported, Header, Rows


def write(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """The whole file or none. table: a Parquet file has no name for it."""
    schema, (_, parquet) = schema_of(header), arrow()
    with replacing(Path(out)) as aside, parquet.ParquetWriter(aside, schema) as file:
        for rows in chunks:
            file.write_batch(to_batch(rows, schema))


def read(source: str, table: str) -> Exported:
    with parquet_of(Path(source)) as file:
        header = header_in(file.schema_arrow, source)
    return Exported(header, _chunks(Path(source)))


def _chunks(source: Path) -> Iterator[Rows]:
    with parquet_of(source) as file:
        yield from map(from_batch, file.iter_batches(CHUNK))

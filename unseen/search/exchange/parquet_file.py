"""An index as one Parquet file, with the columns of `arrow.py`, a row group per chunk."""

from collections.abc import Iterator
from pathlib import Path

from unseen.files import replacing
from unseen.search.exchange.arrow import arrow, from_batch, header_in, schema_of, to_batch
from unseen.search.exchange.rows import CHUNK, Exported, Header, Rows


def write(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """The whole file or none. table: a Parquet file has no name for it."""
    arrow()
    from pyarrow import parquet  # noqa: PLC0415

    schema = schema_of(header)
    with replacing(Path(out)) as aside, parquet.ParquetWriter(aside, schema) as file:
        for rows in chunks:
            file.write_batch(to_batch(rows, schema))


def read(source: str, table: str) -> Exported:
    pa = arrow()
    from pyarrow import parquet  # noqa: PLC0415

    try:
        file = parquet.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{source} is not a whole Parquet file: {error}") from error
    header = header_in(file.schema_arrow, source)
    return Exported(header, map(from_batch, file.iter_batches(CHUNK)))

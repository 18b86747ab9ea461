"""Rows as Arrow's record batches: the columns of Parquet files and of LanceDB's tables.

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

The header is in the schema's metadata under `unseen`.
"""

import json
from dataclasses import fields
from typing import Any

import numpy as np

from unseen.data.images.table_file import arrow
from unseen.search.exchange.rows import Header, Rows
from unseen.search.segment import Metadata

KEY = b"unseen"


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

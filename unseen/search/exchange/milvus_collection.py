"""An index as a collection of Milvus, ready to be searched, and one of a single row beside it.

NAME         place (of the row in the index), id, path, label, metadata, thumbnail (base64), vector
NAME_header  the header
"""

import base64
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from unseen.core.names import by_front_end
from unseen.search.backends.milvus import connect, index_parameters
from unseen.search.exchange.rows import CHUNK, Exported, Header, Rows
from unseen.search.segment import Metadata

BATCH = CHUNK // 4  # rows of one message
MOST_TEXT = 65_535  # of a column


def write(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """The header last: what has one is whole."""
    client = connect(out)
    for name in (table, _header(table)):
        if client.has_collection(name):
            raise ValueError(
                f"Milvus at {out} has a collection {name}: choose another "
                + by_front_end("--table", "table")
            )
    _create(client, table, header)
    place = 0
    for rows in chunks:
        made = [_entity(place + i, rows, i) for i in range(len(rows.ids))]
        for start in range(0, len(made), BATCH):
            client.insert(table, made[start : start + BATCH])
        place += len(made)
    client.create_collection(_header(table), dimension=2, metric_type="L2")
    client.insert(
        _header(table), {"id": 0, "vector": [0.0, 1.0], "header": header.model_dump(mode="json")}
    )


def read(source: str, table: str) -> Exported:
    client = connect(source)
    if not client.has_collection(_header(table)):
        raise ValueError(f"Milvus at {source} has no whole export with the name {table}")
    for name in (table, _header(table)):
        client.load_collection(name)
    message = client.get(_header(table), ids=[0])[0]["header"]
    header = Header.model_validate(message)
    return Exported(header, _chunks(client, table, header.count))


def _chunks(client: Any, table: str, count: int) -> Iterator[Rows]:
    """In the order of the index, which `place` holds."""
    for start in range(0, count, BATCH):
        wanted = f"place >= {start} and place < {start + BATCH}"
        message = client.query(table, filter=wanted, limit=BATCH, output_fields=["*"])
        some = sorted(message, key=lambda row: int(row["place"]))
        yield Rows(
            np.array([row["id"] for row in some], dtype=np.int64),
            np.array([row["vector"] for row in some], dtype=np.float32),
            [_metadata(row) for row in some],
            [base64.b64decode(row["thumbnail"]) for row in some],
        )


def _create(client: Any, name: str, header: Header) -> None:
    from pymilvus import DataType, MilvusClient  # noqa: PLC0415

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("place", DataType.INT64, is_primary=True)
    schema.add_field("id", DataType.INT64)
    schema.add_field("path", DataType.VARCHAR, max_length=MOST_TEXT)
    schema.add_field("label", DataType.VARCHAR, max_length=MOST_TEXT, nullable=True)
    schema.add_field("metadata", DataType.JSON)
    schema.add_field("thumbnail", DataType.VARCHAR, max_length=MOST_TEXT)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=header.model.size)
    parameters = index_parameters(header.count, header.model.normalize)
    client.create_collection(name, schema=schema, index_params=parameters)


def _entity(place: int, rows: Rows, row: int) -> dict[str, Any]:
    metadata = asdict(rows.metadata[row])
    return {
        "place": place,
        "id": int(rows.ids[row]),
        "path": metadata.pop("path"),
        "label": metadata.pop("label"),
        "metadata": metadata,
        "thumbnail": base64.b64encode(rows.thumbnails[row]).decode(),
        "vector": rows.vectors[row].tolist(),
    }


def _metadata(row: dict[str, Any]) -> Metadata:
    metadata = row["metadata"]
    box = tuple(metadata["box"]) if metadata["box"] else None
    return Metadata(**metadata | {"path": row["path"], "label": row["label"], "box": box})


def _header(table: str) -> str:
    return f"{table}_header"

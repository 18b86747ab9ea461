"""Milvus as the store that searches: a file beside the index (milvus-lite), or a cluster.

    unseen index build RUN IMAGES --out INDEX --backend milvus:                     INDEX.milvus.db
    unseen index build RUN IMAGES --out INDEX --backend milvus:http://host:19530

A milvus-lite file belongs to one process at a time. While another has it, or a server does not
answer, searches are exact and changes wait for a writer that finds it free; both are said.
"""

import logging
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.core.extras import install_command
from unseen.core.files import lock
from unseen.search.backends.external import (
    BATCH,
    KEY,
    ExternalBackend,
    Ids,
    Result,
    UnavailableError,
)

EXACT_UP_TO = 200_000  # a larger collection gets a graph
MOST_RESULT = 16_384  # Milvus's own limits
NO_COLLECTION = 100  # Milvus's own code
OPENING = threading.Lock()  # two threads that open one file would each see it as taken


class Milvus(ExternalBackend):
    """The collection of one index."""

    name, most = "Milvus", MOST_RESULT

    def connect(self) -> None:
        with OPENING:
            _ = self._client

    def nearest(self, queries: Tensor, limit: int) -> Result:
        result = self._can_be_read and self._ask(
            "search",
            data=queries.tolist(),
            limit=limit,
            search_params={"params": {"ef": max(limit, self.entry.effort)}},
            output_fields=["serial"],
            consistency_level="Strong",
        )
        sign = 1 if self.normalize else -1
        return [
            (
                np.array([hit["serial"] for hit in hits], dtype=np.int64),
                sign * np.array([hit["distance"] for hit in hits], dtype=np.float32),
            )
            for hits in result or [[] for _ in queries]
        ]

    def serials(self) -> set[int]:
        result: set[int] = set()
        while True:  # its own iterator asks for a clock that milvus-lite does not have
            rows = self._ask(
                "query",
                filter=f"serial > {max(result, default=0)}",
                output_fields=["serial"],
                limit=MOST_RESULT,
                consistency_level="Strong",
            )
            if not rows:
                return result
            result |= {int(row["serial"]) for row in rows}

    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        made = np.full((len(serials), self.size), np.nan, dtype=np.float32)
        place = {int(serial): i for i, serial in enumerate(serials)}
        for start in range(0, len(serials) if self._can_be_read else 0, BATCH):
            rows = self._ask("get", ids=serials[start : start + BATCH].tolist())
            for row in rows or ():
                made[place[int(row["serial"])]] = row["vector"]
        return made

    def insert(self, serials: Ids, vectors: NDArray[np.float32]) -> None:
        rows = [
            {"serial": serial, "vector": vector.tolist()}
            for serial, vector in zip(serials.tolist(), vectors, strict=True)
        ]
        self._ask("upsert", rows)

    def forget(self, serials: Sequence[int]) -> None:
        self._ask("delete", ids=list(serials))

    def mark(self) -> str | None:
        collection = self._ask("describe_collection") if self._can_be_read else None
        return None if collection is None else str(collection.get("properties", {}).get(KEY, ""))

    def make(self, count: int, mark: str) -> None:
        self.connect()
        if self._client.has_collection(self.entry.table):
            self._ask("alter_collection_properties", properties={KEY: mark})
            return
        from pymilvus import DataType, MilvusClient  # noqa: PLC0415

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("serial", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.size)
        parameters = index_parameters(count, self.normalize)
        marked = {KEY: mark}
        self._ask("create_collection", schema=schema, index_params=parameters, properties=marked)

    def resolve(self, count: int) -> bool:
        index = self._ask("describe_index", index_name="vector")
        return index is not None and index["index_type"] != "FLAT"

    def drop(self) -> None:
        self._ask("drop_collection")

    @property
    def is_file(self) -> bool:
        return self._file is not None

    @property
    def _file(self) -> Path | None:
        return _file(self.entry.uri)

    @property
    def _can_be_read(self) -> bool:
        """Whether there can be anything to read: opening would make a missing file."""
        return self._file is None or self._file.exists()

    def _ask(self, call: str, *values: Any, **named: Any) -> Any:
        """A call of the client on the collection; None where there is no such collection."""
        self.connect()
        from pymilvus import MilvusException  # noqa: PLC0415

        try:
            return getattr(self._client, call)(self.entry.table, *values, **named)
        except MilvusException as error:
            if error.code == NO_COLLECTION:
                return None
            raise failed(self.entry.uri, error) from error

    @cached_property
    def _client(self) -> Any:
        client = connect(self.entry.uri)
        from pymilvus import MilvusException  # noqa: PLC0415

        try:
            if client.has_collection(self.entry.table):
                client.load_collection(self.entry.table)  # a new process finds it released
        except MilvusException as error:  # a damaged file of milvus-lite
            raise failed(self.entry.uri, error) from error
        return client


def failed(uri: str, error: Any) -> UnavailableError:
    return UnavailableError(f"Milvus at {uri} failed: {error.message}")


def connect(uri: str) -> Any:
    """Milvus's client; UnavailableError where nobody answers."""
    try:
        from pymilvus import MilvusClient, MilvusException  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"Milvus needs its client: {install_command('milvus')}") from error
    for name in ("pymilvus", "milvus_lite"):  # they print tracebacks of what is said here
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return MilvusClient(uri)
    except MilvusException as error:
        file = _file(uri)
        if file is not None and _is_locked(file / "LOCK"):
            raise UnavailableError(f"{file} is in use by another process") from error
        raise UnavailableError(f"cannot reach Milvus at {uri}: {error.message}") from error


def index_parameters(count: int, normalize: bool) -> Any:
    """How vectors of a collection are found: all compared, or by a graph."""
    from pymilvus import MilvusClient  # noqa: PLC0415

    parameters = MilvusClient.prepare_index_params()
    kind = "FLAT" if count <= EXACT_UP_TO else "HNSW"
    metric = "IP" if normalize else "L2"
    values = {} if kind == "FLAT" else {"M": 32, "efConstruction": 80}
    parameters.add_index("vector", index_type=kind, metric_type=metric, params=values)
    return parameters


def _file(uri: str) -> Path | None:
    """Of milvus-lite; None for a server."""
    return Path(uri) if uri.endswith(".db") else None


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    with file.open() as stream:
        try:
            lock(stream.fileno(), wait=False)
        except BlockingIOError:
            return True
    return False

"""Milvus as the store that searches: a file beside the index (milvus-lite), or a cluster.

    unseen index build RUN IMAGES --out INDEX --store milvus:                     INDEX.milvus.db
    unseen index build RUN IMAGES --out INDEX --store milvus:http://host:19530

The index's folder stays the record: vectors, facts and thumbnails are written there first, then
brought to the collection under their serial numbers. What the collection does not hold yet, after
a crash say, is searched exactly, and brought over by the next writer.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.search.manifest import MilvusEntry
from unseen.search.stores.exact import Found

if TYPE_CHECKING:
    from unseen.search.index import Index

Progress = Callable[[int, int], None]
Ids = NDArray[np.int64]

PREFIX = "milvus:"
EXACT_UP_TO = 200_000  # a larger collection gets a graph
BATCH = 1000
MOST_FOUND = 16_384  # Milvus's own limit


def parse(store: str, index: Path) -> MilvusEntry:
    """`milvus:URI`; without a URI, a file beside the index."""
    if not store.startswith(PREFIX):
        raise ValueError(f"store must be milvus:URI, e.g. milvus:http://host:19530, got {store!r}")
    uri = store.removeprefix(PREFIX) or str(index.resolve()) + ".milvus.db"
    return MilvusEntry(uri=uri, collection=f"unseen_{uuid4().hex[:12]}")


class Milvus:
    """The collection of one index."""

    def __init__(self, entry: MilvusEntry, size: int, normalise: bool) -> None:
        self.entry, self.size, self.normalise = entry, size, normalise

    def search(self, index: "Index", queries: Tensor, k: int) -> Found:
        """The nearest live rows that the collection holds."""
        dead = int((~index.alive).sum())
        found = self._client.search(
            self.entry.collection,
            data=queries.tolist(),
            limit=min(MOST_FOUND, k + dead),
            output_fields=["serial"],
            consistency_level="Strong",
        )
        values = torch.full((len(queries), k), -torch.inf)
        rows = torch.full((len(queries), k), -1, dtype=torch.int64)
        for query, hits in enumerate(found):
            serials = np.array([hit["serial"] for hit in hits], dtype=np.int64)
            sim = np.array([hit["distance"] for hit in hits], dtype=np.float32)
            places = np.searchsorted(index.serials, serials).clip(max=len(index.serials) - 1)
            live = (index.serials[places] == serials) & index.alive[places]
            count = min(k, int(live.sum()))
            rows[query, :count] = torch.from_numpy(places[live][:count])
            values[query, :count] = torch.from_numpy(sim[live][:count])
        return (values if self.normalise else -values), rows

    def bring(self, index: "Index", progress: Progress | None = None) -> int:
        """Brings the collection in line with the index; returns the last serial it holds."""
        if not self._client.has_collection(self.entry.collection):
            self._create(len(index))
        held, wanted = self.serials(), set(index.serials[index.alive].tolist())
        self._forget(held - wanted)
        missing = np.isin(index.serials, list(wanted - held)) & index.alive
        self._insert(index, np.flatnonzero(missing), progress)
        return int(index.serials[-1]) if len(index.serials) else 0

    def _insert(self, index: "Index", missing: Ids, progress: Progress | None) -> None:
        for start in range(0, len(missing), BATCH):
            rows = missing[start : start + BATCH]
            pairs = zip(index.serials[rows].tolist(), index.row_vectors(rows), strict=True)
            self._client.upsert(
                self.entry.collection, [{"serial": s, "vector": v.tolist()} for s, v in pairs]
            )
            if progress is not None:
                progress(start + len(rows), len(missing))

    def count(self) -> int:
        told = self._client.query(
            self.entry.collection, output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(told[0]["count(*)"])

    def serials(self) -> set[int]:
        """Every serial number in the collection."""
        found: set[int] = set()
        while True:
            least = max(found, default=0)
            told = self._client.query(
                self.entry.collection,
                filter=f"serial > {least}",
                output_fields=["serial"],
                limit=MOST_FOUND,
                consistency_level="Strong",
            )
            if not told:
                return found
            found |= {int(row["serial"]) for row in told}

    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        """As the collection holds them; NaN where it does not."""
        made = np.full((len(serials), self.size), np.nan, dtype=np.float32)
        place = {int(serial): i for i, serial in enumerate(serials)}
        for start in range(0, len(serials), BATCH):
            told = self._client.get(
                self.entry.collection, ids=serials[start : start + BATCH].tolist()
            )
            for row in told:
                made[place[int(row["serial"])]] = row["vector"]
        return made

    def drop(self) -> None:
        self._client.drop_collection(self.entry.collection)

    def _forget(self, serials: set[int]) -> None:
        some = sorted(serials)
        for start in range(0, len(some), BATCH):
            self._client.delete(self.entry.collection, ids=some[start : start + BATCH])

    def _create(self, count: int) -> None:
        from pymilvus import DataType, MilvusClient  # noqa: PLC0415

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("serial", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.size)
        parameters = MilvusClient.prepare_index_params()
        kind = "FLAT" if count <= EXACT_UP_TO else "HNSW"
        metric = "IP" if self.normalise else "L2"
        values = {} if kind == "FLAT" else {"M": 32, "efConstruction": 80}
        parameters.add_index("vector", index_type=kind, metric_type=metric, params=values)
        self._client.create_collection(
            self.entry.collection, schema=schema, index_params=parameters
        )

    @cached_property
    def _client(self) -> Any:
        try:
            from pymilvus import MilvusClient, MilvusException  # noqa: PLC0415
        except ImportError as error:
            raise ValueError("Milvus needs its client: pip install 'unseen[milvus]'") from error
        try:
            return MilvusClient(self.entry.uri)
        except MilvusException as error:
            raise ValueError(f"cannot reach Milvus at {self.entry.uri}: {error}") from error

"""Milvus as the store that searches: a file beside the index (milvus-lite), or a cluster.

    unseen index build RUN IMAGES --out INDEX --store milvus:                     INDEX.milvus.db
    unseen index build RUN IMAGES --out INDEX --store milvus:http://host:19530

The index's folder stays the record: vectors, facts and thumbnails are written there first, then
brought to the collection under their serial numbers. What the collection does not hold yet, after
a crash say, is searched exactly, and brought over by the next writer. A milvus-lite file belongs to
one process at a time. While another has it, or a server does not answer, searches are exact and
changes wait for a writer that finds it free; both are said.
"""

import fcntl
import logging
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.contracts import Progress
from unseen.extras import install_command
from unseen.search.manifest import MilvusEntry
from unseen.search.stores.exact import Nearest

if TYPE_CHECKING:
    from unseen.search.index import Index

Ids = NDArray[np.int64]

PREFIX = "milvus:"
EXACT_UP_TO = 200_000  # a larger collection gets a graph
BATCH = 1000
TOLERANCE = 1e-4  # between similarities computed here and there
MOST_FOUND = 16_384  # Milvus's own limit
NO_COLLECTION = 100  # Milvus's own code
RETRY_SECONDS = 10.0  # after a failure; exact search answers meanwhile
OPENING = threading.Lock()  # two threads that open one file would each see it as taken
log = logging.getLogger("unseen.search")


class UnavailableError(ValueError):
    """Another process has the milvus-lite file, or the server does not answer."""


def parse(store: str, index: Path) -> MilvusEntry:
    """`milvus:URI`; without a URI, a file beside the index."""
    if not store.startswith(PREFIX):
        raise ValueError(f"store must be milvus:URI, e.g. milvus:http://host:19530, got {store!r}")
    uri = store.removeprefix(PREFIX) or str(index.resolve()) + ".milvus.db"
    return MilvusEntry(uri=uri, collection=_new_name())


def renewed(entry: MilvusEntry) -> MilvusEntry:
    """For other vectors in the same place: an old collection is never filled with them."""
    return MilvusEntry(uri=entry.uri, collection=_new_name())


class Milvus:
    """The collection of one index."""

    def __init__(self, entry: MilvusEntry, size: int, normalise: bool) -> None:
        self.entry, self.size, self.normalise = entry, size, normalise
        self._wait_until = 0.0

    def search(self, index: "Index", queries: Tensor, k: int) -> Nearest | None:
        """The nearest live rows up to the last serial brought; None where only exact search knows
        them: Milvus cannot be asked, or does not hold enough of them."""
        if not self._can_be_read or time.monotonic() < self._wait_until:
            return None
        try:
            return self._enough(index, queries, k)
        except UnavailableError as error:
            log.warning("%s: searching exactly", error)
            self._wait_until = time.monotonic() + RETRY_SECONDS
            return None

    def _enough(self, index: "Index", queries: Tensor, k: int) -> Nearest | None:
        """Asks for more while rows that were removed or brought since are in the way."""
        covered = index.alive & (index.serials <= self.entry.last_serial)
        wanted, limit = min(k, int(covered.sum())), k + int((~index.alive).sum())
        while k <= MOST_FOUND:
            limit = min(limit, MOST_FOUND)
            hits = self._nearest(queries, limit)
            found = self._rows(index, hits, covered, k)
            if (found[1] >= 0).sum() == wanted * len(queries):
                return self._compared(index, queries, found)
            if limit == MOST_FOUND or all(len(of_query) < limit for of_query in hits):
                return None
            limit *= 4
        return None

    def _nearest(self, queries: Tensor, limit: int) -> list[Any]:
        found: list[Any] | None = self._ask(
            "search",
            data=queries.tolist(),
            limit=limit,
            output_fields=["serial"],
            consistency_level="Strong",
        )
        return [[] for _ in queries] if found is None else found

    def _rows(
        self, index: "Index", found: list[Any], covered: NDArray[np.bool_], k: int
    ) -> Nearest:
        values = torch.full((len(found), k), -torch.inf)
        rows = torch.full((len(found), k), -1, dtype=torch.int64)
        for query, hits in enumerate(found):
            serials = np.array([hit["serial"] for hit in hits], dtype=np.int64)
            sim = np.array([hit["distance"] for hit in hits], dtype=np.float32)
            places = np.searchsorted(index.serials, serials).clip(max=len(index.serials) - 1)
            live = (index.serials[places] == serials) & covered[places]
            count = min(k, int(live.sum()))
            rows[query, :count] = torch.from_numpy(places[live][:count])
            values[query, :count] = torch.from_numpy(sim[live][:count])
        return (values if self.normalise else torch.where(rows < 0, values, -values)), rows

    def _compared(self, index: "Index", queries: Tensor, found: Nearest) -> Nearest:
        """What was found by the vectors of the folder, whose checksums were compared. Where Milvus
        says something else of them, its own files are damaged."""
        told, rows = found
        vectors = torch.from_numpy(index.row_vectors(rows.clamp(min=0).numpy()))  # [Q, k, D]
        if self.normalise:
            sim = (vectors * queries[:, None]).sum(dim=2)
        else:
            sim = -(vectors - queries[:, None]).square().sum(dim=2)
        sim = sim.masked_fill(rows < 0, -torch.inf)
        if not torch.allclose(sim, told, rtol=TOLERANCE, atol=TOLERANCE):
            raise UnavailableError(
                f"Milvus at {self.entry.uri} holds other vectors than {index.path} "
                "(`unseen index verify` counts them)"
            )
        order = sim.argsort(dim=1, descending=True, stable=True)
        return sim.gather(1, order), rows.gather(1, order)

    def bring(self, index: "Index", progress: Progress | None = None) -> int:
        """Brings the collection in line with the index; returns the last serial it holds."""
        if not self.opened().has_collection(self.entry.collection):
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
            self._ask("upsert", [{"serial": s, "vector": v.tolist()} for s, v in pairs])
            if progress is not None:
                progress(start + len(rows), len(missing))

    def count(self) -> int:
        told = self._ask("query", output_fields=["count(*)"], consistency_level="Strong")
        return int(told[0]["count(*)"]) if told else 0

    def serials(self) -> set[int]:
        """Every serial number in the collection."""
        found: set[int] = set()
        while True:
            told = self._ask(
                "query",
                filter=f"serial > {max(found, default=0)}",
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
        for start in range(0, len(serials) if self._can_be_read else 0, BATCH):
            told = self._ask("get", ids=serials[start : start + BATCH].tolist())
            for row in told or ():
                made[place[int(row["serial"])]] = row["vector"]
        return made

    def drop(self) -> None:
        self._ask("drop_collection")

    def _forget(self, serials: set[int]) -> None:
        some = sorted(serials)
        for start in range(0, len(some), BATCH):
            self._ask("delete", ids=some[start : start + BATCH])

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
        self._ask("create_collection", schema=schema, index_params=parameters)

    @property
    def _file(self) -> Path | None:
        """Of milvus-lite; None for a server."""
        return Path(self.entry.uri) if self.entry.uri.endswith(".db") else None

    @property
    def _can_be_read(self) -> bool:
        """Whether there can be anything to read: opening would make a missing file."""
        return self._file is None or self._file.exists()

    def _ask(self, call: str, *values: Any, **named: Any) -> Any:
        """A call of the client on the collection; None where there is no such collection."""
        client = self.opened()
        from pymilvus import MilvusException  # noqa: PLC0415

        try:
            return getattr(client, call)(self.entry.collection, *values, **named)
        except MilvusException as error:
            if error.code == NO_COLLECTION:
                return None
            raise UnavailableError(f"Milvus at {self.entry.uri} failed: {error.message}") from error

    def opened(self) -> Any:
        """The client; UnavailableError where there is nobody to talk to."""
        with OPENING:
            return self._client

    @cached_property
    def _client(self) -> Any:
        try:
            from pymilvus import MilvusClient, MilvusException  # noqa: PLC0415
        except ImportError as error:
            raise ValueError(f"Milvus needs its client: {install_command('milvus')}") from error
        for name in ("pymilvus", "milvus_lite"):  # they print tracebacks of what is said here
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            client = MilvusClient(self.entry.uri)
            if client.has_collection(self.entry.collection):
                client.load_collection(self.entry.collection)  # a new process finds it released
        except MilvusException as error:
            if self._file is not None and _is_locked(self._file / "LOCK"):
                raise UnavailableError(f"{self._file} is in use by another process") from error
            raise UnavailableError(
                f"cannot reach Milvus at {self.entry.uri}: {error.message}"
            ) from error
        return client


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    with file.open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _new_name() -> str:
    return f"unseen_{uuid4().hex[:12]}"

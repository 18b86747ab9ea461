"""LanceDB as the store that searches: a folder, or an address of an object store, and no server.

    unseen index build RUN IMAGES --out INDEX --store lance:                    INDEX.lance
    unseen index build RUN IMAGES --out INDEX --store lance:s3://bucket/birds

Vectors stay on the disk. Up to EXACT_UP_TO rows all are compared; above, they are packed in cells
(IVF-PQ) and LanceDB compares the best again: as many cells, and candidates for each row that is
asked for, as the measured recall needs. Rows that came since are compared one by one.
"""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.pictures.table_file import arrow
from unseen.extras import install_command
from unseen.search.manifest import LanceEntry
from unseen.search.stores.outside import BATCH, Choice, Found, Ids, Outside, UnavailableError

EXACT_UP_TO = 200_000
MOST_FOUND = 16_384


class Lance(Outside):
    """The table of one index."""

    name, most = "LanceDB", MOST_FOUND
    entry: LanceEntry

    def connect(self) -> None:
        self._asked(lambda: self._database)

    def nearest(self, queries: Tensor, limit: int, choice: Choice | None) -> Found:
        def ask() -> Any:
            query = self._table.search(queries.numpy(), vector_column_name="vector")
            query = query.distance_type(self._distance)
            if self.entry.effort:
                query = query.nprobes(self.entry.effort).refine_factor(self.entry.effort)
            if choice is not None:
                query = query.where(_condition(choice), prefilter=True)
            return query.select(["serial", "_distance"]).limit(limit).to_arrow()

        found = self._asked(ask)
        of = _column(found, "query_index") if "query_index" in found.column_names else None
        serials, distances = _column(found, "serial"), _column(found, "_distance")
        sim = (1 - distances if self.normalise else -distances).astype(np.float32)
        parts = [slice(None)] if of is None else [of == query for query in range(len(queries))]
        return [(serials[part], sim[part]) for part in parts]

    def serials(self) -> set[int]:
        found = self._asked(lambda: self._table.search().select(["serial"]).to_arrow())
        return set(_column(found, "serial").tolist())

    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        made = np.full((len(serials), self.size), np.nan, dtype=np.float32)
        place = {int(serial): i for i, serial in enumerate(serials)}
        for start in range(0, len(serials), BATCH):
            told = self._held(_condition(Choice(serials=serials[start : start + BATCH])))
            rows = [place[serial] for serial in _column(told, "serial").tolist()]
            flat = told["vector"].combine_chunks().flatten().to_numpy()
            made[rows] = flat.reshape(-1, self.size)
        return made

    def _held(self, condition: str) -> Any:
        return self._asked(lambda: self._table.search().where(condition).to_arrow())

    def insert(
        self, serials: Ids, vectors: NDArray[np.float32], labels: Sequence[str | None]
    ) -> None:
        pa, _ = arrow()
        flat = pa.array(np.ascontiguousarray(vectors).ravel())
        columns = [
            pa.array(serials),
            pa.array(labels, type=pa.string()),
            pa.FixedSizeListArray.from_arrays(flat, self.size),
        ]
        self._asked(lambda: self._table.add(pa.table(columns, schema=self._schema)))

    def forget(self, serials: Sequence[int]) -> None:
        gone = _condition(Choice(serials=np.array(serials)))
        self._asked(lambda: self._table.delete(gone))

    def make(self, count: int) -> None:
        self._asked(
            lambda: self._database.create_table(
                self.entry.table, schema=self._schema, exist_ok=True
            )
        )

    def settle(self, count: int) -> bool:
        def settle() -> bool:
            packed = bool(self._table.list_indices())
            if not packed and count > EXACT_UP_TO:
                from lancedb.index import IvfPq  # noqa: PLC0415

                self._table.create_index("vector", config=IvfPq(distance_type=self._distance))
            self._table.optimize()
            return packed or count > EXACT_UP_TO

        return bool(self._asked(settle))

    def drop(self) -> None:
        self._asked(lambda: self._database.drop_table(self.entry.table))

    @property
    def _distance(self) -> str:
        return "dot" if self.normalise else "l2"

    @property
    def _schema(self) -> Any:
        pa, _ = arrow()
        vector = pa.list_(pa.float32(), self.size)
        return pa.schema([("serial", pa.int64()), ("label", pa.string()), ("vector", vector)])

    @cached_property
    def _database(self) -> Any:
        return connect(self.entry.uri)

    @cached_property
    def _table(self) -> Any:
        return self._database.open_table(self.entry.table)

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (OSError, RuntimeError, ValueError) as error:
            raise UnavailableError(f"LanceDB at {self.entry.uri} failed: {error}") from error


def connect(uri: str) -> Any:
    """LanceDB's connection."""
    os.environ.setdefault("LANCE_LOG", "error")  # it warns of tables that it makes
    try:
        import lancedb  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ValueError(f"LanceDB needs its package: {install_command('lance')}") from error
    return lancedb.connect(uri)


def _condition(choice: Choice) -> str:
    if choice.label is not None:
        quoted = choice.label.replace("'", "''")
        return f"label = '{quoted}'"
    assert choice.serials is not None
    return f"serial IN ({', '.join(map(str, choice.serials.tolist())) or 'NULL'})"


def _column(table: Any, name: str) -> NDArray[Any]:
    column: NDArray[Any] = table[name].to_numpy()
    return column

"""LanceDB as the store that searches: a folder, or an address of an object store, and no server.

    unseen index build RUN IMAGES --out INDEX --backend lance:                    INDEX.lance
    unseen index build RUN IMAGES --out INDEX --backend lance:s3://bucket/birds

Vectors stay on the disk. Up to EXACT_UP_TO rows all are compared; above, they are packed in cells
(IVF-PQ) and LanceDB compares the best again: as many cells, and candidates for each row that is
asked for, as the measured recall needs. Rows that came since are compared one by one.
"""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.core.extras import install_command
from unseen.data.images.table_file import arrow
from unseen.search.backends.external import (
    BATCH,
    Choice,
    ExternalBackend,
    Ids,
    Result,
    UnavailableError,
)
from unseen.search.backends.owner_marks import KEY

EXACT_UP_TO = 200_000
MOST_RESULT = 16_384
MARKED = "serial"  # the column whose metadata holds the mark: a table's own cannot be changed


class Lance(ExternalBackend):
    """The table of one index."""

    name, most = "LanceDB", MOST_RESULT

    def connect(self) -> None:
        self._request(lambda: self._database)

    def nearest(self, queries: Tensor, limit: int, choice: Choice | None) -> Result:
        def ask() -> Any:
            query = self._table.search(queries.numpy(), vector_column_name="vector")
            query = query.distance_type(self._distance)
            if self.entry.effort:
                query = query.nprobes(self.entry.effort).refine_factor(self.entry.effort)
            if choice is not None:
                query = query.where(_condition(choice), prefilter=True)
            return query.select(["serial", "_distance"]).limit(limit).to_arrow()

        result = self._request(ask)
        of = _column(result, "query_index") if "query_index" in result.column_names else None
        serials, distances = _column(result, "serial"), _column(result, "_distance")
        sim = (1 - distances if self.normalize else -distances).astype(np.float32)
        rows = [slice(None)] if of is None else [of == query for query in range(len(queries))]
        return [(serials[of_query], sim[of_query]) for of_query in rows]

    def serials(self) -> set[int]:
        result = self._request(lambda: self._table.search().select(["serial"]).to_arrow())
        return set(_column(result, "serial").tolist())

    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        made = np.full((len(serials), self.size), np.nan, dtype=np.float32)
        place = {int(serial): i for i, serial in enumerate(serials)}
        for start in range(0, len(serials), BATCH):
            message = self._rows(_condition(Choice(serials=serials[start : start + BATCH])))
            rows = [place[serial] for serial in _column(message, "serial").tolist()]
            flat = message["vector"].combine_chunks().flatten().to_numpy()
            made[rows] = flat.reshape(-1, self.size)
        return made

    def _rows(self, condition: str) -> Any:
        return self._request(lambda: self._table.search().where(condition).to_arrow())

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
        self._request(lambda: self._table.add(pa.table(columns, schema=self._schema)))

    def forget(self, serials: Sequence[int]) -> None:
        condition = _condition(Choice(serials=np.array(serials)))
        self._request(lambda: self._table.delete(condition))

    def mark(self) -> str | None:
        def read() -> str | None:
            try:
                schema = self._database.open_table(self.entry.table).schema
            except ValueError as error:
                if "not found" not in str(error):
                    raise
                return None
            message = schema.field(MARKED).metadata if MARKED in schema.names else None
            return (message or {}).get(KEY.encode(), b"").decode(errors="replace")

        result: str | None = self._request(read)
        return result

    def make(self, count: int, mark: str) -> None:
        if self.mark() is None:
            field = self._schema.field(MARKED).with_metadata({KEY: mark})
            schema = self._schema.set(0, field)
            self._request(lambda: self._database.create_table(self.entry.table, schema=schema))
        else:
            change = {"path": MARKED, "metadata": {KEY: mark}}
            self._request(lambda: self._table.update_field_metadata(change))

    def resolve(self, count: int) -> bool:
        def resolve() -> bool:
            packed = bool(self._table.list_indices())
            if not packed and count > EXACT_UP_TO:
                from lancedb.index import IvfPq  # noqa: PLC0415

                self._table.create_index("vector", config=IvfPq(distance_type=self._distance))
            self._table.optimize()
            return packed or count > EXACT_UP_TO

        return bool(self._request(resolve))

    def drop(self) -> None:
        self._request(lambda: self._database.drop_table(self.entry.table))

    @property
    def _distance(self) -> Literal["dot", "l2"]:
        return "dot" if self.normalize else "l2"

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

    def _request(self, call: Callable[[], Any]) -> Any:
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

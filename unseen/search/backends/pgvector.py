"""PostgreSQL with pgvector as the store that searches, for indexes of several machines.

    unseen index build RUN IMAGES --out INDEX --backend pgvector:postgresql://user@host/images

Up to EXACT_UP_TO vectors all are compared; above, a graph (HNSW) is asked, with the effort that the
measured recall needs. A password stands in `~/.pgpass` or PGPASSWORD, as for every program that
uses PostgreSQL: an index is handed on, and its manifest with it.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unseen.core.extras import install_command
from unseen.search.backends.external import ExternalBackend, Ids, Result, UnavailableError

EXACT_UP_TO = 200_000
MOST_RESULT = 16_384
MOST_EF = 1000  # pgvector's own limit
MOST_IN_GRAPH = 2000  # numbers of a vector, its own too
SECONDS = 10  # until a server counts as unreachable


class Pgvector(ExternalBackend):
    """The table of one index."""

    name, most = "PostgreSQL", MOST_RESULT

    def connect(self) -> None:
        with self._asking():
            _ = self._connection

    def nearest(self, queries: Tensor, limit: int) -> Result:
        operator, sign = ("<#>", -1.0) if self.normalize else ("<->", 1.0)
        query = self._sql(
            f"SELECT serial, vector {operator} %s AS far FROM {{table}} ORDER BY far LIMIT %s"
        )
        result = []
        with self._asking(), self._connection.transaction():
            if self.entry.effort:
                ef = min(MOST_EF, max(self.entry.effort, limit))
                self._connection.execute(f"SET LOCAL hnsw.ef_search = {ef:d}")
            for vector in queries.numpy():
                rows = self._connection.execute(query, (_spelled(vector), limit)).fetchall()
                far = np.array([row[1] for row in rows], dtype=np.float32)
                sim = sign * far if self.normalize else -np.square(far)
                result.append((np.array([row[0] for row in rows], dtype=np.int64), sim))
        return result

    def serials(self) -> set[int]:
        return {serial for (serial,) in self._ask("SELECT serial FROM {table}")}

    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        made = np.full((len(serials), self.size), np.nan, dtype=np.float32)
        if self.mark() is None:
            return made
        place = {int(serial): row for row, serial in enumerate(serials)}
        wanted = "SELECT serial, vector::text FROM {table} WHERE serial = ANY(%s)"
        for serial, text in self._ask(wanted, serials.tolist()):
            made[place[serial]] = np.fromstring(text.strip("[]"), dtype=np.float32, sep=",")
        return made

    def insert(self, serials: Ids, vectors: NDArray[np.float32]) -> None:
        copy = self._sql("COPY {table} (serial, vector) FROM STDIN")
        with self._asking(), self._connection.cursor() as cursor, cursor.copy(copy) as rows:
            for serial, vector in zip(serials.tolist(), vectors, strict=True):
                rows.write_row((serial, _spelled(vector)))

    def forget(self, serials: Sequence[int]) -> None:
        self._ask("DELETE FROM {table} WHERE serial = ANY(%s)", list(serials))

    def mark(self) -> str | None:
        known = "SELECT to_regclass(%s), obj_description(to_regclass(%s), 'pg_class')"
        name = self._sql("{table}").as_string(None)
        ((table, comment),) = self._ask(known, name, name)
        return None if table is None else comment or ""

    def make(self, count: int, mark: str) -> None:
        with self._asking(), self._connection.transaction():
            if self.mark() is None:
                self._ask("CREATE EXTENSION IF NOT EXISTS vector")
                kind = f"vector({self.size:d})"
                self._ask(
                    f"CREATE TABLE {{table}} (serial bigint PRIMARY KEY, vector {kind} NOT NULL)"
                )
            self._connection.execute(self._sql("COMMENT ON TABLE {table} IS {mark}", mark))

    def resolve(self, count: int) -> bool:
        if count <= EXACT_UP_TO or self.size > MOST_IN_GRAPH:
            return False
        operators = "vector_ip_ops" if self.normalize else "vector_l2_ops"
        self._ask("SET client_min_messages = error")
        graph = f"CREATE INDEX IF NOT EXISTS {{graph}} ON {{table}} USING hnsw (vector {operators})"
        self._ask(graph)
        return True

    def drop(self) -> None:
        self._ask("DROP TABLE IF EXISTS {table}")

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._asking():
            result = self._connection.execute(self._sql(query), values)
            return result.fetchall() if result.description else []

    def _sql(self, query: str, mark: str = "") -> Any:
        """With the names of the table and its graph, and a mark, in their places."""
        from psycopg import sql  # noqa: PLC0415

        table, graph = (sql.Identifier(self.entry.table + more) for more in ("", "_graph"))
        return sql.SQL(query).format(table=table, graph=graph, mark=sql.Literal(mark))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            import psycopg  # noqa: PLC0415 - an extra
        except ImportError as error:
            message = f"PostgreSQL needs its client: {install_command('pgvector')}"
            raise ValueError(message) from error
        try:
            yield
        except psycopg.Error as error:
            self.__dict__.pop("_connection", None)  # the next question makes a new one
            why = str(error).strip().splitlines()[0]
            raise UnavailableError(f"PostgreSQL at {self.entry.uri} failed: {why}") from error

    @cached_property
    def _connection(self) -> Any:
        import psycopg  # noqa: PLC0415

        made = psycopg.connect(self.entry.uri, autocommit=True, connect_timeout=SECONDS)
        weakref.finalize(self, made.close)
        return made


def _spelled(vector: NDArray[np.float32]) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"

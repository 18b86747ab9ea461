"""What stores outside the folder share: they hold the live rows up to a serial number, and answer.

The index's folder stays the record: vectors, metadata and thumbnails are written there first, then
brought to the store under their serial numbers. Searches under a filter are exact and do not ask
it. What a store does not hold yet, after a crash say, is searched exactly, and brought over by the
next writer. What it finds is compared again with the vectors of the folder, whose checksums were
compared.

Whose a table is: it carries a mark, and only the mark's index changes it. The mark names the index
and its folder, and holds a word that is drawn anew for every change; the manifest knows the word
before the table gets it. An index that was moved or restored from a backup is still at the mark's
path or has its inode, and knows the word. A copy is elsewhere, or does not know the word since
another copy has changed the table: it gets a table of its own.
"""

import logging
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.search.backends.exact import (
    MOST_EFFORT,
    QUERIES,
    RECALL,
    Mask,
    Nearest,
    recall_of,
    similarities,
)
from unseen.search.manifest import Entry, ExternalEntry

if TYPE_CHECKING:
    from unseen.search.index import Index

Ids = NDArray[np.int64]
Result = list[tuple[Ids, NDArray[np.float32]]]  # of each query: serials and similarities

BATCH = 1000
TOLERANCE = 1e-4  # between similarities computed here and there
FIRST_EFFORT = 16
KEY = "unseen.index"  # of the table's property that holds the mark
RETRY_SECONDS = 10.0  # after a failure; exact search answers meanwhile
log = logging.getLogger("unseen.search")


class UnavailableError(ValueError):
    """The store cannot be asked: another process has it, or nobody answers."""


class ForeignTableError(UnavailableError):
    """The table that the manifest names is not of this index."""


class Mark(Entry):
    """What a table says of its index."""

    index: str  # its identity, which its copies share
    word: str
    folder: str
    inode: str

    @classmethod
    def of(cls, folder: Path, index: str, word: str) -> "Mark":
        result = folder.stat()
        inode = f"{result.st_dev}:{result.st_ino}"
        return cls(index=index, word=word, folder=str(folder.resolve()), inode=inode)

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """None: a text that is no mark."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def is_of_folder(self, other: "Mark") -> bool:
        return self.folder == other.folder or self.inode == other.inode


def new_word() -> str:
    return uuid4().hex


class ExternalBackend(ABC):
    """A store that is no part of the index's folder."""

    name: str  # as people know it
    most: int  # rows of one answer

    def __init__(self, entry: ExternalEntry, size: int, normalize: bool) -> None:
        self.entry, self.size, self.normalize = entry, size, normalize
        self._wait_until = 0.0
        self._compared = False

    @property
    def is_file(self) -> bool:
        """On this disk, whose damage no server notices."""
        return False

    @abstractmethod
    def connect(self) -> None:
        """Raises UnavailableError where there is nobody to talk to."""

    @abstractmethod
    def nearest(self, queries: Tensor, limit: int) -> Result:
        """Of what the store holds, up to so many each."""

    @abstractmethod
    def serials(self) -> set[int]:
        """Every serial number in the store."""

    @abstractmethod
    def vectors(self, serials: Ids) -> NDArray[np.float32]:
        """As the store holds them; NaN where it does not."""

    @abstractmethod
    def insert(self, serials: Ids, vectors: NDArray[np.float32]) -> None: ...

    @abstractmethod
    def forget(self, serials: Sequence[int]) -> None: ...

    @abstractmethod
    def mark(self) -> str | None:
        """The table's (`Mark`); empty where it has none, None where there is no table."""

    @abstractmethod
    def make(self, count: int, mark: str) -> None:
        """A table with this mark: the one that is there, or an empty one for about so many
        vectors."""

    @abstractmethod
    def resolve(self, count: int) -> bool:
        """After rows came or went; whether searches are approximate now."""

    @abstractmethod
    def drop(self) -> None:
        """Removes the table, whosever it is: `is_a_copys` is asked first."""

    def is_a_copys(self, path: Path, identity: str) -> bool:
        """Whether the table is that of another copy of this index; ForeignTableError
        where it is of none at all."""
        result = self._mark_of(path, identity)
        own = Mark.of(path, identity, "")
        return result is not None and not (
            result.word in self.entry.words and result.is_of_folder(own)
        )

    def claimed(self, path: Path, identity: str) -> ExternalEntry:
        """To be written down before the table is changed: it may have its old mark or the next."""
        result = self._mark_of(path, identity)
        words = [new_word()] if result is None else [result.word, new_word()]
        self.entry = self.entry.model_copy(update={"words": words})
        return self.entry

    def require_own_state(self, path: Path, identity: str) -> None:
        """Raises UnavailableError for a table that this index did not leave as it is."""
        result = self._mark_of(path, identity)
        if result is not None and result.word not in self.entry.words:
            raise UnavailableError(f"{self._where} was changed by a copy of {path}")

    def difference(self, index: "Index") -> str:
        """What it holds otherwise than the folder does; nothing where both agree."""
        rows = np.flatnonzero(index.alive & (index.serials <= self.entry.last_serial))
        stored = self.vectors(index.serials[rows])
        wrong = int((stored != index.row_vectors(rows)).any(axis=1).sum())
        lacks = f"{self.name} at {self.entry.uri} lacks {wrong} of {len(rows)} vectors"
        return lacks if wrong else ""

    def _mark_of(self, path: Path, identity: str) -> Mark | None:
        text = self.mark()
        result = None if text is None else Mark.parse(text)
        if text is not None and (result is None or result.index != identity):
            cure = f"`unseen index rebuild {shlex.quote(str(path))}` makes one that is"
            raise ForeignTableError(f"{self._where} is not of {path} ({cure})")
        return result

    @property
    def _where(self) -> str:
        return f"the table {self.entry.table} of {self.name} at {self.entry.uri}"

    def search(self, index: "Index", queries: Tensor, k: int) -> Nearest | None:
        """The nearest live rows up to the last serial brought; None where only exact search
        knows them: the store cannot be asked, or does not hold enough of them."""
        if time.monotonic() < self._wait_until:
            return None
        covered = index.alive & (index.serials <= self.entry.last_serial)
        try:
            if not self._compared:
                self.require_own_state(index.path, index.manifest.identity)
                if self.is_file and (wrong := self.difference(index)):
                    raise UnavailableError(wrong)
                self._compared = True
            return self._enough(index, queries, k, covered)
        except UnavailableError as error:
            log.warning("%s: searching exactly", error)
            self._wait_until = time.monotonic() + RETRY_SECONDS
            return None

    def _enough(self, index: "Index", queries: Tensor, k: int, covered: Mask) -> Nearest | None:
        """Asks for more while rows that were removed or brought since are in the way."""
        wanted, limit = min(k, int(covered.sum())), k + int((~index.alive).sum())
        while k <= self.most:
            limit = min(limit, self.most)
            hits = self.nearest(queries, limit)
            result = _rows(index, hits, covered, k)
            if (result[1] >= 0).sum() == wanted * len(queries):
                return self._by_folder(index, queries, result)
            if limit == self.most or all(len(serials) < limit for serials, _ in hits):
                return None
            limit *= 4
        return None

    def _by_folder(self, index: "Index", queries: Tensor, result: Nearest) -> Nearest:
        """By the vectors of the folder. Where the store says something else of them, its own files
        are damaged."""
        message, rows = result
        vectors = torch.from_numpy(index.row_vectors(rows.clamp(min=0).numpy()))  # [Q, k, D]
        sim = similarities(queries, vectors, self.normalize).masked_fill(rows < 0, -torch.inf)
        if not torch.allclose(sim, message, rtol=TOLERANCE, atol=TOLERANCE):
            raise UnavailableError(
                f"{self.name} at {self.entry.uri} holds other vectors than {index.path} "
                "(`unseen index verify` counts them)"
            )
        order = sim.argsort(dim=1, descending=True, stable=True)
        return sim.gather(1, order), rows.gather(1, order)

    def bring(self, index: "Index", progress: Progress | None = None) -> ExternalEntry:
        """Brings the store, which was `claimed`, in line with the index; returns what it holds."""
        mark = Mark.of(index.path, index.manifest.identity, self.entry.words[-1]).model_dump_json()
        self.make(len(index), mark)
        stored, wanted = self.serials(), set(index.serials[index.alive].tolist())
        stale = sorted(stored - wanted)
        for start in range(0, len(stale), BATCH):
            self.forget(stale[start : start + BATCH])
        rows = np.flatnonzero(np.isin(index.serials, list(wanted - stored)) & index.alive)
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            self.insert(index.serials[some], index.row_vectors(some))
            if progress is not None:
                progress(start + len(some), len(rows))
        last = int(index.serials[-1]) if len(index.serials) else 0
        self.entry = self.entry.model_copy(update={"last_serial": last})
        if (stale or len(rows)) and self.resolve(len(index)):
            self._tune(index)
        if self.mark() != mark:
            raise UnavailableError(f"{self._where} was changed by a copy of {index.path}")
        return self.entry

    def _tune(self, index: "Index") -> None:
        """Doubles the effort until the recall is reached."""
        number, effort = min(QUERIES, len(index)), self.entry.effort or FIRST_EFFORT
        while True:
            self.entry = self.entry.model_copy(update={"effort": effort, "num_queries": number})
            recall = recall_of(index, lambda *request: self._result(index, *request), number)
            self.entry = self.entry.model_copy(update={"recall": round(recall, 4)})
            if recall >= RECALL or effort >= MOST_EFFORT:
                return
            effort *= 2

    def _result(self, index: "Index", queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """What cannot be found counts as not found."""
        hits = self.nearest(queries, k)
        return _rows(index, hits, index.alive, k)


def _rows(index: "Index", result: Result, covered: Mask, k: int) -> Nearest:
    values = torch.full((len(result), k), -torch.inf)
    rows = torch.full((len(result), k), -1, dtype=torch.int64)
    for query, (serials, sim) in enumerate(result):
        places = np.searchsorted(index.serials, serials).clip(max=len(index.serials) - 1)
        live = (index.serials[places] == serials) & covered[places]
        count = min(k, int(live.sum()))
        rows[query, :count] = torch.from_numpy(places[live][:count])
        values[query, :count] = torch.from_numpy(sim[live][:count])
    return values, rows

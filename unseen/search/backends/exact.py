"""Exact search over vectors that stay on disk: mapped into memory, read block by block.

Unit vectors are compared by cosine. Where a processor is faster with 8-bit integers, these are held
in memory, a quarter of the bytes, made with the first search; they say which rows cannot be among
the nearest, with proof (neighbors/certified.py), and only the others are read from disk. Raw ones
are compared by minus the squared distance, and a copy with the squares beside it is held. Without
integers a few queries cost one product with everything and one selection; many go through the
streaming search that evaluation uses.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors import certified, few_queries
from unseen.neighbors.block_products import Exclude, WorkCounter
from unseen.neighbors.certified import Integers
from unseen.neighbors.few_queries import nearest_of_few
from unseen.neighbors.leading_directions import LeadingDirections
from unseen.neighbors.select import select
from unseen.neighbors.space import Space, make_space, precise

if TYPE_CHECKING:
    from unseen.search.index import Index

DIRECT = 2**24  # similarities held at once; with more, the streaming search is faster
BLOCK = 1024
FEW = 4096  # rows below which one product in floats is as fast

RECALL = 0.98  # of an approximate store; its effort is doubled until then
NEAREST = 10
QUERIES = 256
MOST_EFFORT = 2048

Mask = NDArray[np.bool_]
Nearest = tuple[Tensor, Tensor]  # similarities and rows, two [Q, k]; row -1 where there is none


class Exact:
    """Rows counted through all chunks, in their order."""

    def __init__(self, chunks: Sequence[NDArray[np.float32]], normalize: bool) -> None:
        self.chunks = [torch.from_numpy(chunk) for chunk in chunks if len(chunk)]
        self.starts = np.cumsum([0, *(len(chunk) for chunk in self.chunks)])
        self.normalize = normalize
        self._spaces: dict[int, Space] = {}

    def search(
        self,
        queries: Tensor,
        k: int,
        allowed: Mask | None = None,
        counter: WorkCounter | None = None,
    ) -> Nearest:
        """The k nearest rows of each query [Q, D] among the allowed ones. counter: of
        pairs that were compared in integers, and in floats again."""
        if not self.chunks:
            return best_of([], len(queries), k)
        with precise(queries.device):
            if self.normalize and self.starts[-1] >= FEW and certified.pays(self.chunks[0]):
                answer = self._with_integers(queries, k, allowed, counter)
                if answer is not None:
                    return answer
            if len(queries) * int(self.starts[-1]) <= DIRECT:
                return self._at_once(queries, k, allowed)
            result = [
                self._in_chunk(number, queries, k, allowed) for number in range(len(self.chunks))
            ]
            return best_of(result, len(queries), k)

    def _with_integers(
        self, queries: Tensor, k: int, allowed: Mask | None, counter: WorkCounter | None
    ) -> Nearest | None:
        """None: too many rows would have to be read."""
        if len(queries) * int(self.starts[-1]) <= few_queries.MOST:
            forbidden = None if allowed is None else ~torch.from_numpy(allowed)
            return nearest_of_few(
                queries, k, self._integers, self._rows, forbidden, counter, self._leading
            )
        best = best_of([], len(queries), k)
        for chunk, start in zip(self.chunks, self.starts.tolist(), strict=False):
            integers = self._integers[start : start + len(chunk)]
            space = Space(queries, chunk, queries, chunk, None, 0.0, 0.0)
            here = _chunk(allowed, start, len(chunk))
            floor = best[0][:, -1]
            result = _excluding(space, min(k, len(chunk)), here, integers, floor, counter)
            best = best_of([best, _moved(result, start)], len(queries), k)
        return best

    @cached_property
    def _integers(self) -> Integers:
        """Of all chunks, with one scale."""
        return Integers.of(*self.chunks)

    @cached_property
    def _leading(self) -> LeadingDirections | None:
        """Of all chunks; None where whole rows are compared as fast."""
        return LeadingDirections.of(self.chunks, self._integers)

    def _rows(self, positions: Tensor) -> Tensor:
        if len(self.chunks) == 1:
            return self.chunks[0].index_select(0, positions)
        wanted = positions.numpy()
        made = np.empty((len(wanted), self.chunks[0].shape[1]), dtype=np.float32)
        number = np.searchsorted(self.starts, wanted, "right") - 1
        for each in np.flatnonzero(np.bincount(number)).tolist():
            here = np.flatnonzero(number == each)
            made[here] = self.chunks[each].numpy()[wanted[here] - self.starts[each]]
        return torch.from_numpy(made)

    def _at_once(self, queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """Every similarity side by side, then one selection."""
        sim = torch.empty(len(queries), int(self.starts[-1]))
        for number, start in enumerate(self.starts[:-1].tolist()):
            left, right = self._factors(number, queries)
            torch.mm(left, right.T, out=sim[:, start : start + len(right)])
        return _direct(sim, k, allowed)

    def _in_chunk(self, number: int, queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """Whole blocks go as they are; only the rest would be copied to be made whole."""
        left, right = self._factors(number, queries)
        start, whole = int(self.starts[number]), len(right) // BLOCK * BLOCK
        result = []
        if whole:
            space = Space(left, right[:whole], left, right[:whole], None, 0.0, 0.0)
            result.append(_moved(_excluding(space, k, _chunk(allowed, start, whole)), start))
        if whole < len(right):
            rest = _chunk(allowed, start + whole, len(right) - whole)
            result.append(_moved(_direct(left @ right[whole:].T, k, rest), start + whole))
        return best_of(result, len(queries), k)

    def _factors(self, number: int, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Two matrices whose product is the similarity of queries and a chunk's rows."""
        chunk = self.chunks[number]
        if self.normalize:
            return queries, chunk
        if number not in self._spaces:
            self._spaces[number] = make_space(chunk[:1], chunk, normalize=False)
        space = self._spaces[number]
        moved = (queries.double() - space.center).float()  # type: ignore[operator]
        norm = moved.square().sum(dim=1, keepdim=True)
        return torch.cat([2 * moved, -norm, -torch.ones_like(norm)], dim=1), space.right


def best_of(result: Sequence[Nearest], num_queries: int, k: int) -> Nearest:
    """One list per query from several; equals by row, always k wide."""
    if len(result) == 1 and result[0][0].shape[1] == k:
        values, rows = result[0]
        return values, rows.masked_fill(values == -math.inf, -1)
    values = torch.full((num_queries, k), -math.inf)
    rows = torch.full((num_queries, k), -1, dtype=torch.int64)
    values = torch.cat([values, *(chunk[0].float() for chunk in result)], dim=1)
    rows = torch.cat([rows, *(chunk[1] for chunk in result)], dim=1)
    rows, order = rows.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :k], rows.gather(1, order)[:, :k].masked_fill(values[:, :k] == -math.inf, -1)


def recall_of(
    index: "Index", search: Callable[[Tensor, int, Mask | None], Nearest], num_queries: int
) -> float:
    """The share of the ten nearest of exact search that a store finds."""
    rows = np.random.default_rng(0).choice(len(index), num_queries, replace=False)
    queries = torch.from_numpy(index.row_vectors(np.flatnonzero(index.alive)[rows]))
    k = min(NEAREST, len(index))
    allowed = None if index.alive.all() else index.alive
    _, exact = index.exact.search(queries, k, allowed)
    _, result = search(queries, k, allowed)
    hits = (exact[:, :, None] == result[:, None, :]).any(dim=2)
    return float(hits.double().mean())


def similarities(queries: Tensor, vectors: Tensor, normalize: bool) -> Tensor:
    """Of queries [Q, D] with vectors of their own [Q, C, D]: cosines of unit ones, or minus the
    squared distances."""
    if normalize:
        return torch.bmm(vectors, queries[:, :, None])[:, :, 0]
    return -(vectors - queries[:, None]).square().sum(dim=2)


def _moved(result: Nearest, start: int) -> Nearest:
    values, rows = result
    return values, torch.where(rows < 0, rows, rows + start)


def _direct(sim: Tensor, k: int, allowed: Mask | None) -> Nearest:
    if allowed is not None:
        sim.masked_fill_(~torch.from_numpy(allowed), -math.inf)
    values, rows = sim.topk(min(k, sim.shape[1]), dim=1)
    return best_of([(values, rows)], len(sim), k)


def _excluding(
    space: Space,
    k: int,
    allowed: Mask | None,
    integers: Integers | None = None,
    floor: Tensor | None = None,
    counter: WorkCounter | None = None,
) -> Nearest:
    exclude: Exclude | None = None
    if allowed is not None:
        forbidden = ~torch.from_numpy(allowed)
        exclude = lambda _, items: forbidden[items]  # noqa: E731
    return select(
        space,
        k,
        exclude=exclude,
        block=BLOCK,
        cached=integers,
        floor=floor,
        counter=counter,
    )


def _chunk(allowed: Mask | None, start: int, count: int) -> Mask | None:
    if allowed is None:
        return None
    chunk = allowed[start : start + count]
    return None if chunk.all() else chunk

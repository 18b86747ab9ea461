"""Exact search over vectors that stay on disk: mapped into memory, read block by block.

Unit vectors are compared by cosine. Where a processor is faster with 8-bit integers, these are held
in memory, a quarter of the bytes, made with the first search; they say which rows cannot be among
the nearest, with proof (neighbours/certified.py), and only the others are read from disk. Raw ones
are compared by minus the squared distance, and a copy with the squares beside it is held. Without
integers a few queries cost one product with everything and one selection; many go through the
streaming search that evaluation uses.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbours import certified, few
from unseen.neighbours.certified import Integers
from unseen.neighbours.few import nearest_of_few
from unseen.neighbours.product import Tally
from unseen.neighbours.select import select
from unseen.neighbours.space import Space, make_space, precise

DIRECT = 2**24  # similarities held at once; with more, the streaming search is faster
BLOCK = 1024
FEW = 4096  # rows below which one product in floats is as fast

Mask = NDArray[np.bool_]
Nearest = tuple[Tensor, Tensor]  # similarities and rows, two [Q, k]; row -1 where there is none


class Exact:
    """Rows counted through all parts, in their order."""

    def __init__(self, parts: Sequence[NDArray[np.float32]], normalise: bool) -> None:
        self.parts = [torch.from_numpy(part) for part in parts if len(part)]
        self.starts = np.cumsum([0, *(len(part) for part in self.parts)])
        self.normalise = normalise
        self._spaces: dict[int, Space] = {}

    def search(
        self, queries: Tensor, k: int, allowed: Mask | None = None, tally: Tally | None = None
    ) -> Nearest:
        """The k nearest rows of each query [Q, D] among the allowed ones. tally: counts pairs that
        were compared in integers, and in floats again."""
        if not self.parts:
            return best_of([], len(queries), k)
        with precise(queries.device):
            if self.normalise and self.starts[-1] >= FEW and certified.pays(self.parts[0]):
                answer = self._with_integers(queries, k, allowed, tally)
                if answer is not None:
                    return answer
            if len(queries) * int(self.starts[-1]) <= DIRECT:
                return self._at_once(queries, k, allowed)
            found = [
                self._in_part(number, queries, k, allowed) for number in range(len(self.parts))
            ]
            return best_of(found, len(queries), k)

    def _with_integers(
        self, queries: Tensor, k: int, allowed: Mask | None, tally: Tally | None
    ) -> Nearest | None:
        """None: too many rows would have to be read."""
        if len(queries) * int(self.starts[-1]) <= few.MOST:
            forbidden = None if allowed is None else ~torch.from_numpy(allowed)
            return nearest_of_few(queries, k, self._integers, self._rows, forbidden, tally)
        best = best_of([], len(queries), k)
        for part, start in zip(self.parts, self.starts.tolist(), strict=False):
            held = self._integers[start : start + len(part)]
            space = Space(queries, part, queries, part, None, 0.0, 0.0)
            here = _part(allowed, start, len(part))
            floor = best[0][:, -1]
            found = _excluding(space, min(k, len(part)), here, held, floor, tally)
            best = best_of([best, _moved(found, start)], len(queries), k)
        return best

    @cached_property
    def _integers(self) -> Integers:
        """Of all parts, with one scale."""
        return Integers.of(*self.parts)

    def _rows(self, positions: Tensor) -> Tensor:
        if len(self.parts) == 1:
            return self.parts[0][positions]
        wanted = positions.numpy()
        made = np.empty((len(wanted), self.parts[0].shape[1]), dtype=np.float32)
        number = np.searchsorted(self.starts, wanted, "right") - 1
        for each in np.flatnonzero(np.bincount(number)).tolist():
            here = np.flatnonzero(number == each)
            made[here] = self.parts[each].numpy()[wanted[here] - self.starts[each]]
        return torch.from_numpy(made)

    def _at_once(self, queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """Every similarity side by side, then one selection."""
        sim = torch.empty(len(queries), int(self.starts[-1]))
        for number, start in enumerate(self.starts[:-1].tolist()):
            left, right = self._factors(number, queries)
            torch.mm(left, right.T, out=sim[:, start : start + len(right)])
        return _direct(sim, k, allowed)

    def _in_part(self, number: int, queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """Whole blocks go as they are; only the rest would be copied to be made whole."""
        left, right = self._factors(number, queries)
        start, whole = int(self.starts[number]), len(right) // BLOCK * BLOCK
        found = []
        if whole:
            space = Space(left, right[:whole], left, right[:whole], None, 0.0, 0.0)
            found.append(_moved(_excluding(space, k, _part(allowed, start, whole)), start))
        if whole < len(right):
            rest = _part(allowed, start + whole, len(right) - whole)
            found.append(_moved(_direct(left @ right[whole:].T, k, rest), start + whole))
        return best_of(found, len(queries), k)

    def _factors(self, number: int, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Two matrices whose product is the similarity of queries and a part's rows."""
        part = self.parts[number]
        if self.normalise:
            return queries, part
        if number not in self._spaces:
            self._spaces[number] = make_space(part[:1], part, normalise=False)
        held = self._spaces[number]
        moved = (queries.double() - held.centre).float()  # type: ignore[operator]
        norm = moved.square().sum(dim=1, keepdim=True)
        return torch.cat([2 * moved, -norm, -torch.ones_like(norm)], dim=1), held.right


def best_of(found: Sequence[Nearest], num_queries: int, k: int) -> Nearest:
    """One list per query from several; equals by row, always k wide."""
    if len(found) == 1 and found[0][0].shape[1] == k:
        values, rows = found[0]
        return values, rows.masked_fill(values == -math.inf, -1)
    values = torch.full((num_queries, k), -math.inf)
    rows = torch.full((num_queries, k), -1, dtype=torch.int64)
    values = torch.cat([values, *(part[0].float() for part in found)], dim=1)
    rows = torch.cat([rows, *(part[1] for part in found)], dim=1)
    rows, order = rows.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :k], rows.gather(1, order)[:, :k].masked_fill(values[:, :k] == -math.inf, -1)


def _moved(found: Nearest, start: int) -> Nearest:
    values, rows = found
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
    held: Integers | None = None,
    floor: Tensor | None = None,
    tally: Tally | None = None,
) -> Nearest:
    if allowed is None:
        return select(space, k, block=BLOCK, held=held, floor=floor, tally=tally)
    forbidden = ~torch.from_numpy(allowed)
    without = lambda _, items: forbidden[items]  # noqa: E731
    return select(space, k, exclude=without, block=BLOCK, held=held, floor=floor, tally=tally)


def _part(allowed: Mask | None, start: int, count: int) -> Mask | None:
    if allowed is None:
        return None
    part = allowed[start : start + count]
    return None if part.all() else part

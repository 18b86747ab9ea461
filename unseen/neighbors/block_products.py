"""Blocks of the matrix of similarities: whole in floats, or the few pairs of them that matter."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors import certified
from unseen.neighbors.certified import Integers
from unseen.neighbors.space import Space
from unseen.neighbors.top_lists import Best, can_begin, kth_of_groups

Exclude = Callable[[Tensor, Tensor], Tensor]  # positions of queries and items -> who is forbidden
Bytes = NDArray[np.bool_]
Pairs = tuple[Tensor, Tensor, Tensor]  # row, column and value, three [P], by row

STRIP = 256  # rows of a block at a time: their integers stay in a cache
MARGIN = 1.1  # of the error, below the best of a block that has no bar yet
TOO_MANY = 5  # a block with more than one in so many pairs left is done in floats


@dataclass
class WorkCounter:
    """How many pairs were compared, and how many of them again in floats."""

    pairs: int = 0
    again: int = 0

    @property
    def fraction(self) -> float:
        """Of the pairs that were compared twice."""
        return self.again / max(1, self.pairs)

    def add(self, pairs: int, again: int) -> None:
        self.pairs += pairs
        self.again += again


class Product:
    """Rows and columns in panels. `queries` and `items` are the positions they came from."""

    def __init__(
        self,
        space: Space,
        height: int,
        width: int,
        exclude: Exclude | None = None,
        *,
        in_integers: bool = False,
        cached: Integers | None = None,
    ) -> None:
        self.symmetric, self.exclude = space.symmetric, exclude
        self.left, self.queries = _arranged(space.left, in_integers)
        self.right, self.items = self.left, self.queries
        if space.right is not space.left:
            self.right, self.items = _arranged(space.right, in_integers and cached is None)
        self.rows, self.columns = _panels(len(self.left), height), _panels(len(self.right), width)
        self.counter, self._in_vain, self._tried = WorkCounter(), 0, 0
        self._lock, self._own = threading.Lock(), threading.local()
        self._rows: list[Integers] = []
        self._columns: list[Integers] = []
        if in_integers:
            self._columns = [
                Integers.of(self.right[columns]) if cached is None else cached[columns]
                for columns in self.columns
            ]
            self._rows = self._columns
            if self.rows != self.columns or self.right is not self.left:
                self._rows = [Integers.of(self.left[rows]) for rows in self.rows]

    def offer(self, i: int, j: int, mine: Best, theirs: Best | None = None) -> None:
        """A block to the lists of its rows and, mirrored, to those of its columns."""
        if not self._offer_pairs(i, j, mine, theirs):
            self._offer_floats(i, j, mine, theirs)

    def _offer_floats(
        self, i: int, j: int, mine: Best, theirs: Best | None, but: Tensor | None = None
    ) -> None:
        """The whole block, but for some pairs [R, C] that were offered already."""
        left, right = self.left[self.rows[i]], self.right[self.columns[j]]
        block = self._scratch("floats", len(left), len(right), left.dtype)
        mirrored = self.symmetric and self.rows[i] == self.columns[j]
        multiply = _symmetric_product if mirrored else _product
        multiply(left, right, block)
        self._forbid(block, i, j, -math.inf)
        if but is not None:
            block.masked_fill_(but, -math.inf)
        mine.offer(block, self.items[self.columns[j]])
        if theirs is not None:
            theirs.offer(block.T, self.queries[self.rows[i]])
        self._count(block.numel(), 0)

    def _offer_pairs(self, i: int, j: int, mine: Best, theirs: Best | None) -> bool:
        """Only what may lie above its row's bar, or its column's; False: floats are cheaper."""
        if not self._rows or self._in_vain > 4 + self._tried // 2:
            return False
        if not mine.has_bar:
            return theirs is None and self._begin(i, j, mine)
        num_pairs = len(self._rows[i].whole) * len(self._columns[j].whole)
        clears = self._clears(i, j, mine.bar, None if theirs is None else theirs.bar)
        again = int(np.count_nonzero(clears))
        too_many = TOO_MANY * again > num_pairs
        with self._lock:
            self._tried += 1
            self._in_vain += too_many
        if too_many:
            return False
        row, column, value = self._compared(i, j, clears)
        mine.offer_pairs(row, self.items[self.columns[j]].index_select(0, column), value)
        if theirs is not None:
            chosen = (value > theirs.bar[column]).nonzero()[:, 0]
            chosen = chosen[column[chosen].argsort(stable=True)]
            queries = self.queries[self.rows[i]][row[chosen]]
            theirs.offer_pairs(column[chosen], queries, value[chosen])
        self._count(num_pairs, again)
        return True

    def _begin(self, i: int, j: int, mine: Best) -> bool:
        """The same where there is no bar yet: the best by integers, in floats, set the first. With
        them goes what lies within the bound: mostly that is all that may lie above the bar."""
        rows, columns, dtype = self._rows[i], self._columns[j], self.left.dtype
        width = len(columns.whole)
        if not can_begin(width, mine.keep):
            return False
        whole = self._scratch("whole", len(rows.whole), width, torch.int32)
        torch._int_mm(rows.whole, columns.whole.T, out=whole)
        self._forbid(whole, i, j, certified.LEAST)
        bound = rows.bound(columns, dtype)
        best = kth_of_groups(whole, mine.keep).numpy() - MARGIN * bound.error / bound.unit  # [R]
        best = best.clip(min=certified.LEAST).astype(np.int32)
        clears = self._bytes(len(whole), width)
        np.greater(whole.numpy(), best[:, None], out=clears[:, :width])
        if TOO_MANY * (again := int(np.count_nonzero(clears))) > whole.numel():
            return False
        items = self.items[self.columns[j]]
        row, column, value = self._compared(i, j, clears)
        mine.offer_pairs(row, items.index_select(0, column), value)
        mine.raise_bar()
        rest = np.minimum(bound.at_most(mine.bar), best)
        if (rest == best).all():  # all that may lie above the bar is listed
            self._count(whole.numel(), again)
            return True
        done = torch.from_numpy(clears[:, :width]).clone()
        np.greater(whole.numpy(), rest[:, None], out=clears[:, :width])
        clears[:, :width] ^= done.numpy()  # which lie above `rest` all
        if TOO_MANY * int(np.count_nonzero(clears)) > whole.numel():
            self._offer_floats(i, j, mine, None, but=done)
            return True
        row, column, value = self._compared(i, j, clears)
        mine.offer_pairs(row, items.index_select(0, column), value)
        self._count(whole.numel(), again + len(row))
        return True

    def _compared(self, i: int, j: int, clears: Bytes) -> Pairs:
        """The pairs of a block that clear, in floats; -inf where no neighbour is to be had."""
        row, column = certified.places(clears)
        left, right = self.left[self.rows[i]], self.right[self.columns[j]]
        value = certified.pair_products(left, right, row, column)
        query = self.queries[self.rows[i]].index_select(0, row)
        item = self.items[self.columns[j]].index_select(0, column)
        if self.symmetric:
            value.masked_fill_(query == item, -math.inf)
        if self.exclude is not None:
            value.masked_fill_(self.exclude(query, item), -math.inf)
        return row, column, value

    def _clears(self, i: int, j: int, bar: Tensor, others: Tensor | None) -> Bytes:
        """[R, C], C rounded up to eights: what is not proven to lie below both bars."""
        rows, columns, dtype = self._rows[i], self._columns[j], self.left.dtype
        width = len(columns.whole)
        clears = self._bytes(len(rows.whole), width)
        mine = rows.bound(columns, dtype).at_most(bar)[:, None]
        theirs = None if others is None else columns.bound(rows, dtype).at_most(others)
        for first in range(0, len(rows.whole), STRIP):
            strip = slice(first, first + STRIP)
            whole = self._scratch("whole", len(rows.whole[strip]), width, torch.int32)
            torch._int_mm(rows.whole[strip], columns.whole.T, out=whole)
            hits = clears[strip, :width]
            np.greater(whole.numpy(), mine[strip], out=hits)
            if theirs is not None:
                np.logical_or(hits, whole.numpy() > theirs, out=hits)
        return clears

    def _forbid(self, block: Tensor, i: int, j: int, lowest: float) -> None:
        """Sets what is no neighbour to the lowest value."""
        rows, columns = self.rows[i], self.columns[j]
        if self.symmetric:
            block.diagonal(rows.start - columns.start).fill_(lowest)
        if self.exclude is not None:
            query, item = self.queries[rows, None], self.items[columns]
            block.masked_fill_(self.exclude(query, item), lowest)

    def _count(self, pairs: int, again: int) -> None:
        with self._lock:
            self.counter.add(pairs, again)

    def _bytes(self, height: int, width: int) -> Bytes:
        """A matrix of truth values, a little wider, so that eight can be looked at at once."""
        clears: Bytes = self._scratch("clears", height, -(-width // 8) * 8, torch.bool).numpy()
        clears[:, width:] = False
        return clears

    def _scratch(self, name: str, height: int, width: int, dtype: torch.dtype) -> Tensor:
        """Memory of this thread, kept: fresh memory costs more than many an operation on it."""
        buffer: Tensor | None = getattr(self._own, name, None)
        if buffer is None or len(buffer) < height * width:
            buffer = torch.empty(height * width, dtype=dtype, device=self.left.device)
            setattr(self._own, name, buffer)
        return buffer[: height * width].view(height, width)


def _product(left: Tensor, right: Tensor, out: Tensor) -> None:
    torch.mm(left, right.T, out=out)


def _symmetric_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """The same for three quarters of the work: one corner is another's mirror image."""
    half = len(left) // 2
    _product(left[:half], right, out[:half])
    _product(left[half:], right[half:], out[half:, half:])
    out[half:, :half] = out[:half, half:].T


def _arranged(x: Tensor, in_integers: bool) -> tuple[Tensor, Tensor]:
    """Rows in the order they are multiplied in, and the positions they came from."""
    if not in_integers:
        return x, torch.arange(len(x), device=x.device)
    order = certified.by_scale(x)
    return x.index_select(0, order), order


def _panels(count: int, block: int) -> list[slice]:
    """About equal ones of about the wanted size."""
    size = -(-count // max(1, round(count / block))) if count else 1
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]

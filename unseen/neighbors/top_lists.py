"""The running lists of a panel of rows: the largest values so far, and a bar for the next."""

import math
import threading

import torch
from torch import Tensor

from unseen.neighbors.row_sort import above, in_order, kth_largest

GROUP = 8  # columns that share a maximum in the first bar
ROOM = 4  # notes per row, in lists


class Best:
    """The `keep` largest values of each row of a panel so far, among notes not yet compared."""

    def __init__(self, num_rows: int, keep: int, like: Tensor) -> None:
        self.keep, self.width = keep, ROOM * keep + GROUP
        self.values = like.new_full((num_rows, self.width), -math.inf)
        self.columns = torch.full_like(self.values, -1, dtype=torch.int32)
        self.used = torch.zeros(num_rows, dtype=torch.int64, device=like.device)
        self.bar = like.new_full((num_rows,), -math.inf)
        self.row_start = torch.arange(num_rows, device=like.device) * self.width
        self.since_raised = 0
        self.lock = threading.Lock()

    @property
    def has_bar(self) -> bool:
        """Some row has a bar."""
        return bool((self.bar > -math.inf).any())

    def raise_bar(self) -> None:
        """To the last of each list so far."""
        with self.lock:
            self.bar = torch.maximum(self.bar, self._last_of_list())
            self.since_raised = 0

    def offer(self, block: Tensor, items: Tensor) -> None:
        """Notes what a block [R, C] of these items [C] holds; it may be a transposed view."""
        with self.lock:
            if not self.has_bar:
                self.bar = _first_bar(block, self.keep)
                if not self.has_bar:
                    self._merge(block, items.int().expand(block.shape))
                    return
            row, column, value = above(block, self.bar)
            count = torch.bincount(row, minlength=len(self.bar))
            if not self._has_room(count):
                self._merge(block, items.int().expand(block.shape))
                return
            self._note(row, items[column], value, count)

    def offer_pairs(self, row: Tensor, item: Tensor, value: Tensor) -> None:
        """The same of chosen pairs [P], by row."""
        with self.lock:
            clears = (value > self.bar.index_select(0, row)).nonzero()[:, 0]
            row, item, value = (each.index_select(0, clears) for each in (row, item, value))
            count = torch.bincount(row, minlength=len(self.bar))
            if not self._has_room(count):
                place = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
                values = self.values.new_full((len(count), int(count.max())), -math.inf)
                items = torch.full_like(values, -1, dtype=torch.int32)
                values[row, place], items[row, place] = value, item.int()
                self._merge(values, items)
                return
            self._note(row, item, value, count)

    def sorted(self) -> tuple[Tensor, Tensor]:  # two [R, keep]
        """The lists, largest first, equals by column; column -1 where there was nothing left."""
        width = max(self.keep, int(self.used.max()))
        values, columns = in_order(self.values[:, :width], self.columns[:, :width], self.keep)
        return values, columns.long().masked_fill_(values == -math.inf, -1)

    def _has_room(self, count: Tensor) -> bool:
        """For so many more notes in each row, if need be by keeping only the best so far."""
        if int((self.used + count).max()) > self.width:
            self._compact()
        return int((self.used + count).max()) <= self.width

    def _note(self, row: Tensor, column: Tensor, value: Tensor, count: Tensor) -> None:
        first_place = self.row_start + self.used - (count.cumsum(0) - count)
        place = first_place.index_select(0, row) + torch.arange(len(row), device=row.device)
        self.values.view(-1).scatter_(0, place, value)
        self.columns.view(-1).scatter_(0, place, column.int())
        self.used += count
        self.since_raised += len(row)
        if 2 * self.since_raised > self.keep * len(self.used):  # the bar is worth raising
            self.bar = torch.maximum(self.bar, self._last_of_list())
            self.since_raised = 0

    def _last_of_list(self) -> Tensor:  # [R]
        """The `keep`-th largest note of each row."""
        return kth_largest(self.values[:, : max(self.keep, int(self.used.max()))], self.keep)

    def _compact(self) -> None:
        """Keeps the best notes and raises the bar to the last of them."""
        width = max(self.keep, int(self.used.max()))
        values, columns = in_order(self.values[:, :width], self.columns[:, :width], self.keep)
        self.values[:, self.keep : width] = -math.inf
        self._set_lists(values, columns)

    def _merge(self, values: Tensor, columns: Tensor) -> None:
        """Takes in everything, two [R, C]: when there is no bar yet, or more hits than room."""
        width = max(self.keep, int(self.used.max()))
        values = torch.cat([self.values[:, :width], values], dim=1)
        columns = torch.cat([self.columns[:, :width], columns], dim=1)
        self.values[:, self.keep :] = -math.inf
        values, order = values.topk(self.keep, dim=1, sorted=False)
        self._set_lists(values, columns.gather(1, order))

    def _set_lists(self, values: Tensor, columns: Tensor) -> None:
        self.values[:, : self.keep] = values
        self.columns[:, : self.keep] = columns
        self.used.fill_(self.keep)
        self.bar = torch.maximum(self.bar, values.amin(dim=1))


def can_begin(num_columns: int, keep: int) -> bool:
    """Whether a first bar from so many columns is worth anything."""
    return num_columns >= 2 * keep


def kth_of_groups(block: Tensor, keep: int) -> Tensor:  # [R]
    """The `keep`-th largest of group maxima, which as many entries of a row reach."""
    return kth_largest(_folded(block, 2 * keep), keep)


def _first_bar(block: Tensor, keep: int) -> Tensor:  # [R]
    """A little below what `keep` entries of each row reach; -inf where there are too few."""
    if not can_begin(block.shape[1], keep):
        return block.new_full((len(block),), -math.inf)
    bar = kth_of_groups(block, keep)
    return torch.nextafter(bar, torch.full_like(bar, -math.inf))


def _folded(block: Tensor, least: int) -> Tensor:
    """Maxima of interleaved groups of columns, at least so many of them."""
    group = min(GROUP, block.shape[1] // least)
    count = block.shape[1] // group  # the last few columns may be left out
    return block[:, : count * group].unflatten(1, (group, count)).amax(dim=1)

"""The nearest of a few queries among many rows that stay where they are: integers are held instead.

One product of integers with everything. At least k rows reach its k-th largest, p, so the k-th
largest product in floats is at least unit p - error (neighbors/certified.py), and a row below p -
2 error / unit is none of the k nearest. The others are fetched and compared in floats: a query
among 100,000 rows reads their integers and some dozen rows.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.certified import LEAST, Integers
from unseen.neighbors.row_sort import in_order
from unseen.neighbors.top_lists import can_begin, kth_of_groups

MOST = 2**22  # products held at once
TOO_MANY = 5  # more than one row in so many to be fetched: floats are cheaper

Rows = Callable[[Tensor], Tensor]  # positions [P] -> rows [P, D]
Places = NDArray[np.int64]  # [P]


def nearest_of_few(
    queries: Tensor,
    k: int,
    cached: Integers,
    rows: Rows,
    forbidden: Tensor | None = None,
    counter: WorkCounter | None = None,
) -> tuple[Tensor, Tensor] | None:  # two [Q, k]
    """Products and positions, largest first, equals by position; None: too much would be fetched.

    forbidden: bool [N], rows that do not answer. counter: of the pairs compared.
    """
    if not can_begin(len(cached.whole), k):
        return None
    mine = Integers.of(queries)
    whole = torch._int_mm(mine.whole, cached.whole.T)
    if forbidden is not None:
        whole.masked_fill_(forbidden, LEAST)
    bound = mine.bound(cached, queries.dtype)
    low = kth_of_groups(whole, k).double() - (2 * bound.error / bound.unit + 2)  # [Q]
    hits = np.flatnonzero(whole.numpy() > low.clamp_(min=LEAST).int().numpy()[:, None])
    if TOO_MANY * len(hits) > whole.numel():
        return None
    if counter is not None:
        counter.add(whole.numel(), len(hits))
    row, item = np.divmod(hits, len(cached.whole))
    values = _products(queries, row, rows(torch.from_numpy(item)))
    return _sorted(values, row, item, len(queries), k)


def _products(queries: Tensor, row: Places, fetched: Tensor) -> Tensor:  # [P]
    if len(queries) == 1:
        return (fetched * queries).sum(dim=1)
    return (queries[torch.from_numpy(row)] * fetched).sum(dim=1)


def _sorted(
    values: Tensor, row: Places, item: Places, num_queries: int, k: int
) -> tuple[Tensor, Tensor]:  # two [Q, k]
    """The k largest values of each row, by row; -1 where there are no more."""
    count = np.bincount(row, minlength=num_queries)
    place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    width = max(k, int(count.max()))
    table = values.new_full((num_queries, width), -torch.inf)
    items = torch.full((num_queries, width), -1, dtype=torch.int32)
    table.numpy()[row, place], items.numpy()[row, place] = values.numpy(), item
    result, columns = in_order(table, items, k)
    return result, columns.long().masked_fill_(result == -torch.inf, -1)

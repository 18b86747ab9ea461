"""The nearest of a few queries among many rows that stay where they are: integers are held instead.

One product of integers with everything. At least k rows reach its k-th largest, p, so the k-th
largest product in floats is at least unit p - error (neighbors/certified.py), and a row below p -
2 error / unit is none of the k nearest. The others are fetched and compared in floats: a query
among 100,000 rows reads their integers and some dozen rows.
"""

import numpy as np
import torch
from torch import Tensor

from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.certified import LEAST, Integers
from unseen.neighbors.leading_directions import LeadingDirections, Places, Rows
from unseen.neighbors.row_sort import in_order
from unseen.neighbors.top_lists import can_begin, kth_of_groups

MOST = 2**22  # products held at once
ONE_BY_ONE = 8  # queries up to which each has its own rows refused by leading directions
TOO_MANY = 5  # more than one row in so many to be fetched: floats are cheaper


def nearest_of_few(
    queries: Tensor,
    k: int,
    cached: Integers,
    rows: Rows,
    forbidden: Tensor | None = None,
    counter: WorkCounter | None = None,
    leading: LeadingDirections | None = None,
) -> tuple[Tensor, Tensor] | None:  # two [Q, k]
    """Products and positions, largest first, equals by position; None: too much would be fetched.

    forbidden: bool [N], rows that do not answer. counter: of the pairs compared. leading: of the
    same rows; with it most are refused after a part of their dimensions.
    """
    num_rows = len(cached.whole)
    if not can_begin(num_rows, k):
        return None
    hits = None
    if leading is not None and len(queries) <= ONE_BY_ONE:
        hits = _left_by_leading(queries, k, leading, rows, forbidden)
    if hits is None:
        hits = _left(queries, k, cached, forbidden)
    if TOO_MANY * len(hits) > len(queries) * num_rows:
        return None
    if counter is not None:
        counter.add(len(queries) * num_rows, len(hits))
    row, item = np.divmod(hits, num_rows)
    values = _products(queries, row, rows(torch.from_numpy(item)))
    return _sorted(values, row, item, len(queries), k)


def _left(queries: Tensor, k: int, cached: Integers, forbidden: Tensor | None) -> Places:
    """What may be among the k nearest of each query, counted through all pairs."""
    mine = Integers.of(queries)
    whole = torch._int_mm(mine.whole, cached.whole.T)
    if forbidden is not None:
        whole.masked_fill_(forbidden, LEAST)
    bound = mine.bound(cached, queries.dtype)
    low = kth_of_groups(whole, k).numpy() - (2 * bound.error / bound.unit + 2)  # [Q]
    return np.flatnonzero(whole.numpy() > low.clip(min=LEAST).astype(np.int32)[:, None])


def _left_by_leading(
    queries: Tensor, k: int, leading: LeadingDirections, rows: Rows, forbidden: Tensor | None
) -> Places | None:
    """The same, query by query; None: for one of them comparing whole rows is cheaper."""
    places = []
    for number, query in enumerate(queries.split(1)):
        left = leading.left(query, k, rows, forbidden)
        if left is None:
            return None
        places.append(left + number * len(leading.whole.whole))
    return np.concatenate(places)


def _products(queries: Tensor, row: Places, fetched: Tensor) -> Tensor:  # [P]
    if len(queries) == 1:
        return (fetched * queries).sum(dim=1)
    return (queries[torch.from_numpy(row)] * fetched).sum(dim=1)


def _sorted(
    values: Tensor, row: Places, item: Places, num_queries: int, k: int
) -> tuple[Tensor, Tensor]:  # two [Q, k]
    """The k largest values of each row, by row; -1 where there are no more."""
    if num_queries == 1 and len(row) >= k:
        result, columns = in_order(values[None], torch.from_numpy(item.astype(np.int32))[None], k)
        return result, columns.long()
    count = np.bincount(row, minlength=num_queries)
    place = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    width = max(k, int(count.max()))
    table = values.new_full((num_queries, width), -torch.inf)
    items = torch.full((num_queries, width), -1, dtype=torch.int32)
    table.numpy()[row, place], items.numpy()[row, place] = values.numpy(), item
    result, columns = in_order(table, items, k)
    return result, columns.long().masked_fill_(result == -torch.inf, -1)

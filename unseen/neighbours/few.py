"""The nearest of a few queries among many rows that stay where they are: integers are held instead.

One product of integers with everything; the best by it are fetched and compared in floats, which
sets a bar; what may lie above it, by the bound of neighbours/certified.py, is fetched next. A query
among 100,000 rows reads their integers and some dozen rows.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unseen.neighbours.certified import LEAST, Integers
from unseen.neighbours.lists import Best, can_begin, kth_of_groups

MOST = 2**22  # products held at once
TOO_MANY = 5  # more than one row in so many to be fetched: floats are cheaper

Rows = Callable[[Tensor], Tensor]  # positions [P] -> rows [P, D]


def nearest_of_few(
    queries: Tensor, k: int, held: Integers, rows: Rows, forbidden: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:  # two [Q, k]
    """Products and positions, largest first, equals by position; None: too much would be fetched.

    forbidden: bool [N], rows that do not answer.
    """
    if not can_begin(len(held.whole), k):
        return None
    mine = Integers.of(queries)
    whole = torch._int_mm(mine.whole, held.whole.T)
    if forbidden is not None:
        whole.masked_fill_(forbidden, LEAST)
    best = Best(len(queries), k, queries)
    first = kth_of_groups(whole, k).clamp_(min=LEAST + 1) - 1  # [Q]

    def offer(low: Tensor, high: Tensor | None) -> bool:
        """What lies above the low products [Q] and not above the high ones."""
        hits = whole.numpy() > low.numpy()[:, None]
        if high is not None:
            hits &= whole.numpy() <= high.numpy()[:, None]
        row, item = map(torch.from_numpy, np.divmod(np.flatnonzero(hits), len(held.whole)))
        if TOO_MANY * len(row) > whole.numel():
            return False
        best.offer_pairs(row, item, (queries[row] * rows(item)).sum(dim=1))
        return True

    if not offer(first, None):
        return None
    best.raise_bar()
    bar = mine.bound(held, queries.dtype).at_most(best.bar)
    return best.sorted() if offer(torch.minimum(bar, first), first) else None

"""Precision at 1: whether the nearest neighbour is right; the same number as recall at 1.

Formula  P@1(q) = 1 if the nearest gallery item has the query's label, else 0.
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      the name pytorch-metric-learning gives to recall at 1 (`precision_at_1`).
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, hits


class PrecisionAt1(Retrieval):
    """No parameters."""

    def depth(self, max_relevant: int) -> int:
        return 1

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        return hits(neighbours, 1).double()

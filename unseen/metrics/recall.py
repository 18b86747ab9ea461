"""Recall at k as this field means it: whether a right item is among the first k neighbours.

Formula  R@k(q) = 1 if one of the k nearest gallery items has the query's label, else 0.
Queries  without any relevant item: undefined (NaN), left out of the mean and counted.
Ties     wrong items first. Self: removed by position.
Values   k = 1, 2, 4, 8 for CUB and Cars, 1, 10, 100, 1000 for Stanford Online Products,
         1, 10, 20, 30, 40, 50 for In-Shop; `recall@4` is k = 4.
Use      the headline number. Elsewhere called hit rate, CMC or accuracy at k.
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, hits


class Recall(Retrieval):
    """k: how many neighbours may contain the right one."""

    def __init__(self, k: int = 1) -> None:
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number, at least 1, got {k}")
        self.k = k

    def depth(self, max_relevant: int) -> int:
        return self.k

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        return (hits(neighbours, self.k) > 0).double()

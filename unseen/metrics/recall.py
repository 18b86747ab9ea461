"""Recall at k."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, hits


class Recall(Retrieval):
    """Recall at k as this field means it: whether a right item is among the first k neighbours.

    Formula:
        R@k(q) = 1 if one of the k nearest gallery items has the query's label, else 0.

    Queries:
        without any relevant item: undefined (NaN), left out of the mean and counted.

    Ties:
        wrong items first. Self: removed by position.

    Args:
        k: how many neighbours may contain the right one; 1, 2, 4, 8 for CUB and Cars, 1, 10, 100,
            1000 for Stanford Online Products, 1, 10, 20, 30, 40, 50 for In-Shop. `recall@4` is k =
            4.

    Use:
        the headline number. Elsewhere called hit rate, CMC or accuracy at k.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["recall@2"])
        >>> round(scores.values["recall@2"].value, 3)
        1.0
    """

    def __init__(self, k: int = 1) -> None:
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number, at least 1, got {k}")
        self.k = k

    def depth(self, max_relevant: int) -> int:
        return self.k

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return (hits(neighbors, self.k) > 0).double()

"""Precision at 1."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, hits


class PrecisionAt1(Retrieval):
    """Precision at 1: whether the nearest neighbour is right; the same number as recall at 1.

    Formula:
        P@1(q) = 1 if the nearest gallery item has the query's label, else 0.

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        the name pytorch-metric-learning gives to recall at 1 (`precision_at_1`).

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["precision_at_1"])
        >>> round(scores.values["precision_at_1"].value, 3)
        0.5
    """

    def depth(self, max_relevant: int) -> int:
        return 1

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return hits(neighbors, 1).double()

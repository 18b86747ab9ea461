"""F1 over the nearest neighbours."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, hits


class NeighborF1(Retrieval):
    """F1 of the k nearest: precision and recall of retrieval, not of clusters (that is `f1`).

    Formula:
        P(q) = right / k,  R(q) = right / relevant,  F1(q) = 2 P R / (P + R)
        with `right` items of the query's label among the k nearest and `relevant` ones in all;
        = 2 right / (k + relevant). At k = relevant it equals R-precision.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, eq. 28; k is not printed, and
        their code computes F1 of clusters

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Args:
        k: how many neighbours are answers. `neighbor_f1@4` is k = 4.

    Use:
        where the number of answers is fixed and both missed and wrong ones count.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["neighbor_f1@2"])
        >>> round(scores.values["neighbor_f1@2"].value, 3)
        0.667
    """

    def __init__(self, k: int = 1) -> None:
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number, at least 1, got {k}")
        self.k = k

    def depth(self, max_relevant: int) -> int:
        return self.k

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return 2 * hits(neighbors, self.k).double() / (self.k + neighbors.num_relevant)

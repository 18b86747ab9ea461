"""Mean reciprocal rank."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, ranks_of


class Mrr(Retrieval):
    """Mean reciprocal rank: one over the rank of the first right item.

    Formula:
        MRR(q) = 1 / (rank of the nearest relevant item in the whole ranking, from 1).

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        search with one wanted answer; `mean_reciprocal_rank` in pytorch-metric-learning.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["mrr"])
        >>> round(scores.values["mrr"].value, 3)
        0.75
    """

    needs_ranks = True

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        ranks = ranks_of(neighbors)
        if ranks.shape[1] == 0:
            return neighbors.num_relevant.double()
        return 1 / ranks[:, 0].clamp(min=1).double()

"""Mean reciprocal rank: one over the rank of the first right item.

Formula  MRR(q) = 1 / (rank of the nearest relevant item in the whole ranking, from 1).
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      search with one wanted answer; `mean_reciprocal_rank` in pytorch-metric-learning.
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, ranks_of


class Mrr(Retrieval):
    """No parameters."""

    needs_ranks = True

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        ranks = ranks_of(neighbours)
        if ranks.shape[1] == 0:
            return neighbours.num_relevant.double()
        return 1 / ranks[:, 0].clamp(min=1).double()

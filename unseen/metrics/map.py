"""Mean average precision."""

import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, ranks_of


class Map(Retrieval):
    """Mean average precision over the whole ranking.

    Formula:
        mAP(q) = 1/R * sum over the k-th relevant item in the ranking, at rank r(k), of k / r(k),
        R being the number of relevant items.

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        information retrieval; `mean_average_precision` in pytorch-metric-learning with k=None. The
        ranks come from a counting pass over the whole gallery: costlier than a neighbour list.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["map"])
        >>> round(scores.values["map"].value, 3)
        0.75
    """

    needs_ranks = True

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        ranks = ranks_of(neighbors).double()
        order = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
        precision = torch.where(ranks > 0, order / ranks.clamp(min=1), 0.0)
        return precision.sum(1) / neighbors.num_relevant

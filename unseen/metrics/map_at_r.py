"""Mean average precision at R."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, precision_sums


class MapAtR(Retrieval):
    """Mean average precision at R: R-precision that also rewards right items for coming early.

    Formula:
        mAP@R(q) = 1/R * sum over r <= R with a right r-th neighbour of (right among first r) / r,
        R = R(q) being the number of relevant items.

    Paper:
        K. Musgrave et al., A Metric Learning Reality Check, ECCV 2020,
        https://arxiv.org/abs/2003.08505

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        `mean_average_precision_at_r` in pytorch-metric-learning; the metric to select models by.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["map_at_r"])
        >>> round(scores.values["map_at_r"].value, 3)
        0.5
    """

    def depth(self, max_relevant: int) -> int:
        return max_relevant

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return precision_sums(neighbors, neighbors.num_relevant) / neighbors.num_relevant

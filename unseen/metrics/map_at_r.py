"""Mean average precision at R: R-precision that also rewards right items for coming early.

Paper    K. Musgrave et al., A Metric Learning Reality Check, ECCV 2020,
         https://arxiv.org/abs/2003.08505
Formula  mAP@R(q) = 1/R * sum over r <= R with a right r-th neighbour of (right among first r) / r,
         R = R(q) being the number of relevant items.
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      `mean_average_precision_at_r` in pytorch-metric-learning; the metric to select models by.
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, precision_sums


class MapAtR(Retrieval):
    """No parameters."""

    def depth(self, max_relevant: int) -> int:
        return max_relevant

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        return precision_sums(neighbours, neighbours.num_relevant) / neighbours.num_relevant

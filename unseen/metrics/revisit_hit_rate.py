"""The "mAP" of equation 29 in Roth et al. as printed: the share of right items among the first n.

Paper    K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473
Formula  (right items among the n nearest) / n, where n = R + 1 counts the query itself.
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      to check the paper; its tables hold revisit_map. A perfect ranking scores R / (R + 1).
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, hits


class RevisitHitRate(Retrieval):
    """No parameters."""

    def depth(self, max_relevant: int) -> int:
        return max_relevant + 1

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        class_size = neighbours.num_relevant + 1
        return hits(neighbours, class_size) / class_size.double()

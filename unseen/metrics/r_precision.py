"""R-precision: the share of right items among the first R, R being how many there are.

Formula  RP(q) = (right items among the R(q) nearest) / R(q).
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      as `r_precision` in pytorch-metric-learning. Blind to the order inside the first R: see
         map_at_r.
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, hits


class RPrecision(Retrieval):
    """No parameters."""

    def depth(self, max_relevant: int) -> int:
        return max_relevant

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        return hits(neighbours, neighbours.num_relevant) / neighbours.num_relevant.double()

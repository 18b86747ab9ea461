"""mAP over the first 1000 neighbours, as in the later code of Roth et al.

Formula  sum over r <= 1000 with a right r-th neighbour of (right among first r) / r, divided by
         n = R + 1, which counts the query itself as one of its class.
Queries  without any relevant item: undefined. Ties: wrong first. Self: removed by position.
Use      beside numbers of that code. A perfect ranking scores R / (R + 1), not 1, and less where a
         class has more than 1001 items.
"""

from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, precision_sums


class MapAt1000(Retrieval):
    """No parameters."""

    def depth(self, max_relevant: int) -> int:
        return 1000

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        return precision_sums(neighbours, 1000) / (neighbours.num_relevant + 1)

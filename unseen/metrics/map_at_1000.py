"""Mean average precision at 1000."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, precision_sums


class MapAt1000(Retrieval):
    """mAP over the first 1000 neighbours, as in the later code of Roth et al.

    Formula:
        sum over r <= 1000 with a right r-th neighbour of (right among first r) / r, divided by
        n = R + 1, which counts the query itself as one of its class.

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        beside numbers of that code. A perfect ranking scores R / (R + 1), not 1, and less where a
        class has more than 1001 items.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["map_at_1000"])
        >>> round(scores.values["map_at_1000"].value, 3)
        0.375
    """

    def depth(self, max_relevant: int) -> int:
        return 1000

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return precision_sums(neighbors, 1000) / (neighbors.num_relevant + 1)

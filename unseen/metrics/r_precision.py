"""R-precision."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, hits


class RPrecision(Retrieval):
    """R-precision: the share of right items among the first R, R being how many there are.

    Formula:
        RP(q) = (right items among the R(q) nearest) / R(q).

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        as `r_precision` in pytorch-metric-learning. Blind to the order inside the first R: see
        map_at_r.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["r_precision"])
        >>> round(scores.values["r_precision"].value, 3)
        0.5
    """

    def depth(self, max_relevant: int) -> int:
        return max_relevant

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        return hits(neighbors, neighbors.num_relevant) / neighbors.num_relevant.double()

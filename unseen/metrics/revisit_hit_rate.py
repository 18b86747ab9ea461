"""Equation 29 of Roth et al. as printed."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, hits


class RevisitHitRate(Retrieval):
    """The "mAP" of equation 29 in Roth et al. as printed: right items among the first n.

    Formula:
        (right items among the n nearest) / n, where n = R + 1 counts the query itself.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        to check the paper; its tables hold revisit_map. A perfect ranking scores R / (R + 1).

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["revisit_hit_rate"])
        >>> round(scores.values["revisit_hit_rate"].value, 3)
        0.5
    """

    def depth(self, max_relevant: int) -> int:
        return max_relevant + 1

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        class_size = neighbors.num_relevant + 1
        return hits(neighbors, class_size) / class_size.double()

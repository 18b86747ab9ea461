"""The "mAP" of the tables of Roth et al."""

from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, precision_sums


class RevisitMap(Retrieval):
    """The "mAP" of the published tables of Roth et al.: cut at, and divided by, the class size.

    Formula:
        sum over r <= n with a right r-th neighbour of (right among first r) / r, divided by n,
        where n = R + 1 counts the query itself as one of its class.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473 (their code at publication;
        equation 29 of the paper is something else, see revisit_hit_rate)

    Queries:
        without any relevant item: undefined. Ties: wrong first. Self: removed by position.

    Use:
        only beside those tables. A perfect ranking scores R / (R + 1), not 1: at most 98.3 % on
        CUB, 98.8 % on Cars and 81.3 % on Stanford Online Products.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["revisit_map"])
        >>> round(scores.values["revisit_map"].value, 3)
        0.375
    """

    def depth(self, max_relevant: int) -> int:
        return max_relevant + 1

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        class_size = neighbors.num_relevant + 1
        return precision_sums(neighbors, class_size) / class_size

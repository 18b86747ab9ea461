"""Average set intersection."""

import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, graded_of


class AverageSetIntersection(Retrieval):
    """Average set intersection, ASI: how much of the best k items the first k hold, over all k.

    Formula:
        SI(k) = number of items that the first k found and the first k of a best ranking share,
        over k; ASI(q) = mean of SI(k) for k from 1 to the number of related items. Among items of
        one grade the best ranking is the one that shares most.

    Paper:
        Y. Sun et al., Dynamic Metric Learning: Towards a Scalable Metric Space to Accommodate
        Multiple Semantic Scales, CVPR 2021, https://arxiv.org/abs/2103.11781

    Queries:
        without anything of their class: undefined. Ties: lower grades first. Self: removed.

    Use:
        levels, label sets, grades: the whole order counts, not how far apart grades are. With
        classes it is the mean of precision@k for k from 1 to R.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["average_set_intersection"])
        >>> round(scores.values["average_set_intersection"].value, 3)
        0.5
    """

    needs_grades = True

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        ranks, grades = graded_of(neighbors).ranks, graded_of(neighbors).grades
        width = ranks.shape[1]
        k = torch.arange(1, width + 1, device=ranks.device)
        best = grades.sort(dim=1, descending=True).values
        early = (ranks > 0) & (ranks <= width)
        place = (ranks - 1).clamp(0, max(0, width - 1))
        shared = torch.zeros_like(grades)
        for value in grades.unique():
            if value == 0:
                continue
            here = torch.zeros_like(grades).scatter_add_(
                1, place, (early & (grades == value)).double()
            )
            shared += torch.minimum(here.cumsum(1), (best == value).cumsum(1).double())
        related = (ranks > 0).sum(1, keepdim=True)
        return torch.where(k <= related, shared / k, 0.0).sum(1) / related[:, 0]

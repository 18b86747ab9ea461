"""Hierarchical average precision."""

import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, graded_of


class HierarchicalAp(Retrieval):
    """Hierarchical average precision, H-AP: a near miss is worth something.

    Formula:
        for a query with related items K (grade above 0) and relevance
        r(k) = grade(k)^alpha / number of the query's items with k's grade:

            H-rank(k) = r(k) + sum over the j in K ranked above k of min(r(j), r(k))
            H-AP(q)   = sum over K of H-rank(k) / rank(k), over the sum over K of r(k)

    Paper:
        E. Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval,
        ECCV 2022, https://arxiv.org/abs/2207.04873

    Queries:
        without anything of their class: undefined. Ties: lower grades first. Self: removed.

    Args:
        alpha: how much more the finer grades count; 1 (paper). `hierarchical_ap@2` is alpha = 2.

    Use:
        levels: the grade is the share of levels two items have in common. With classes it is the
        mean average precision.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["hierarchical_ap"])
        >>> round(scores.values["hierarchical_ap"].value, 3)
        0.75
    """

    needs_grades = True

    def __init__(self, alpha: float = 1.0) -> None:
        if not alpha > 0:
            raise ValueError(f"alpha must be a number above 0, got {alpha}")
        self.alpha = alpha

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        ranks, grades = graded_of(neighbors).ranks, graded_of(neighbors).grades
        values = grades.unique()
        worth = [  # of one item of each grade, with the grade
            (value, value**self.alpha / (grades == value).sum(1, keepdim=True).clamp(min=1))
            for value in values[values > 0]
        ]
        relevance, gained = torch.zeros_like(grades), torch.zeros_like(grades)
        for value, each in worth:
            relevance += each * (grades == value)
        for value, each in worth:  # those of one grade that stand above, or there
            gained += torch.minimum(relevance, each) * (grades == value).cumsum(1)
        return (gained / ranks.clamp(min=1)).sum(1) / relevance.sum(1)

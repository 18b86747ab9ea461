"""Hierarchical average precision, H-AP: average precision in which a near miss is worth something.

Source   E. Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval,
         ECCV 2022, https://arxiv.org/abs/2207.04873
Formula  for a query with related items K (grade above 0) and relevance
         r(k) = grade(k)^alpha / number of the query's items with k's grade:

             H-rank(k) = r(k) + sum over the j in K ranked above k of min(r(j), r(k))
             H-AP(q)   = sum over K of H-rank(k) / rank(k), over the sum over K of r(k)

Queries  without anything of their class: undefined. Ties: lower grades first. Self: removed.
Values   alpha = 1 (paper); `hierarchical_ap@2` is alpha = 2: finer levels count more.
Use      levels: the grade is the share of levels two items have in common. With classes it is the
         mean average precision.
"""

import torch
from torch import Tensor

from unseen.contracts import Neighbours
from unseen.metrics.base import Retrieval, graded_of


class HierarchicalAp(Retrieval):
    """alpha: how much more the finer grades count."""

    needs_grades = True

    def __init__(self, alpha: float = 1.0) -> None:
        if not alpha > 0:
            raise ValueError(f"alpha must be a number above 0, got {alpha}")
        self.alpha = alpha

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbours: Neighbours) -> Tensor:  # [Q]
        ranks, grades = graded_of(neighbours).ranks, graded_of(neighbours).grades
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

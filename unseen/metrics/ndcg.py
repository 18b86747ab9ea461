"""Normalised discounted cumulative gain."""

import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.metrics.base import Retrieval, graded_of


class Ndcg(Retrieval):
    """nDCG at k: the grades of the first k neighbours, discounted by rank, over the best possible.

    Formula:
        DCG@k(q) = sum over the first k neighbours, at rank r, of grade / log2(1 + r);
        nDCG@k(q) = DCG@k(q) over that of the ranking in which grades fall.

    Paper:
        K. Jarvelin, J. Kekalainen, Cumulated Gain-based Evaluation of IR Techniques, ACM TOIS 2002

    Queries:
        without anything of their class: undefined. Ties: lower grades first. Self: removed.

    Args:
        k: how many neighbours count; 10. `ndcg@5` is k = 5.

    Use:
        where items are more or less the same: levels, label sets, grades. The gain is the grade
        itself, as in scikit-learn's `ndcg_score`; some papers take 2^grade - 1. With classes the
        grade is 1 or 0.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["ndcg@2"])
        >>> round(scores.values["ndcg@2"].value, 3)
        0.815
    """

    needs_grades = True

    def __init__(self, k: int = 10) -> None:
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number, at least 1, got {k}")
        self.k = k

    def depth(self, max_relevant: int) -> int:
        return 0

    def on_queries(self, neighbors: Neighbors) -> Tensor:  # [Q]
        result = graded_of(neighbors)
        first = (result.ranks > 0) & (result.ranks <= self.k)
        gained = torch.where(first, result.grades / (1 + result.ranks).double().log2(), 0.0).sum(1)
        best = result.grades.sort(dim=1, descending=True).values[:, : self.k]
        rank = torch.arange(1, best.shape[1] + 1, device=best.device)
        return gained / (best / (1 + rank).double().log2()).sum(1)

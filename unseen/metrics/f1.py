"""Pairwise F1 of a clustering."""

import torch
from torch import Tensor

from unseen.metrics.base import Clustering, contingency


class F1(Clustering):
    """Pairwise F1 of a clustering: whether items of one class share a cluster, and only they do.

    Formula:
        over pairs of items: tp = same class and cluster, a = same cluster, c = same class;
        P = tp / a, R = tp / c, F1 = 2 tp / (a + c); 0 where there is neither pair.
        (Roth et al. write of nearest neighbours in equation 28; their code computes this.)

    Items:
        value of an item = F1 + N (2 tp(i) - F1 (a(i) + c(i))) / (a + c), where tp(i), a(i), c(i)
        count the pairs it is part of.

    Use:
        the same clustering as NMI.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["f1"])
        >>> round(scores.values["f1"].value, 3)
        1.0
    """

    def on_items(self, assignments: Tensor, labels: Tensor) -> Tensor:  # [N]
        cell, cluster, label, total = contingency(assignments, labels)
        pairs = (cluster + label - 2).sum() / 2  # a + c
        if pairs == 0:
            return torch.zeros_like(cell)
        f1 = (cell - 1).sum() / pairs
        return f1 + total * (2 * (cell - 1) - f1 * (cluster + label - 2)) / pairs

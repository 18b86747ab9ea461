"""Adjusted Rand index."""

import torch
from torch import Tensor

from unseen.metrics.base import Clustering, contingency


class Ari(Clustering):
    """Adjusted Rand index of clusters and classes: pairs that both join, corrected for chance.

    Formula:
        with I, A, B the number of pairs of items in one cell (cluster and class), in one cluster,
        in one class, and T all pairs: ARI = (I - A B / T) / ((A + B) / 2 - A B / T); 1 where both
        put every item alone, or all together.

    Paper:
        L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2, 1985

    Items:
        value of an item = ARI + its influence: twice what its own pairs differ from the mean item,
        put through the formula's slope in I, A and B.

    Use:
        k-means with as many clusters as classes; the grouping of unknown queries of an open set.
        0 is chance, also where groups are many and small.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["ari"])
        >>> round(scores.values["ari"].value, 3)
        1.0
    """

    def on_items(self, assignments: Tensor, labels: Tensor) -> Tensor:  # [N]
        sizes = contingency(assignments, labels)
        both, one, two, every = (size - 1 for size in sizes)  # partners of each item, four [N]
        joined, a, b, t = (partners.mean() for partners in (both, one, two, every))
        chance, most = a * b / t.clamp(min=1), (a + b) / 2
        room = most - chance
        if room.abs() < 1e-12:  # every item alone, or all together, in both
            return torch.ones_like(both)
        ari = (joined - chance) / room
        # slopes of (I - E) / (M - E), E = A B / T, M = (A + B) / 2
        of_a = (-b / t - ari * (0.5 - b / t)) / room
        of_b = (-a / t - ari * (0.5 - a / t)) / room
        slope = (both - joined) / room + of_a * (one - a) + of_b * (two - b)
        return ari + 2 * slope

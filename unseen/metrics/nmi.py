"""Normalised mutual information."""

import torch
from torch import Tensor

from unseen.metrics.base import Clustering, contingency


class Nmi(Clustering):
    """Normalised mutual information of clusters and classes, with the arithmetic mean.

    Formula:
        NMI = 2 I(clusters, classes) / (H(clusters) + H(classes)); 1 where both entropies are 0.
        (Equation 27 of Roth et al., I / (2 (H + H)), is a slip: it cannot exceed 0.25.
        scikit-learn before 0.22 took the geometric mean.)

    Items:
        value of an item in cell (k, c) = NMI + its influence, which follows from those of I and H:
        log(p(k,c) / (p(k) p(c))) - I,   -log p(k) - H(clusters),   -log p(c) - H(classes).

    Use:
        k-means with as many clusters as classes. Not corrected for chance: inflated when there are
        many small classes; see ami.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["nmi"])
        >>> round(scores.values["nmi"].value, 3)
        1.0
    """

    def on_items(self, assignments: Tensor, labels: Tensor) -> Tensor:  # [N]
        cell, cluster, label, total = contingency(assignments, labels)
        information = torch.log(cell * total / (cluster * label))  # [N], mean: I
        entropies = torch.log(total / cluster) + torch.log(total / label)  # [N], mean: both H
        whole = entropies.mean()
        if whole == 0:
            return torch.ones_like(entropies)
        nmi = 2 * information.mean() / whole
        return nmi + (2 * information - nmi * entropies) / whole

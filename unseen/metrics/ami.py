"""Adjusted mutual information."""

import torch
from torch import Tensor

from unseen.metrics.base import Clustering, contingency


class Ami(Clustering):
    """Adjusted mutual information: mutual information beyond what chance gives.

    Formula:
        AMI = (I - E) / ((H(clusters) + H(classes)) / 2 - E), E being the expectation of I over all
        tables with the same cluster and class sizes (hypergeometric cells).

    Paper:
        N. Vinh et al., Information Theoretic Measures for Clusterings Comparison, JMLR 2010,
        https://jmlr.org/papers/v11/vinh10a.html

    Items:
        as in nmi, with E held fixed.

    Cost:
        E depends on sizes only, so clusters of equal size and classes of equal size share a term.

    Use:
        instead of NMI whenever numbers of classes differ: 0 is chance, 1 is perfect.

    Example:
        >>> import unseen
        >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> scores = unseen.evaluate(embeddings, [0, 0, 1, 1], metrics=["ami"])
        >>> round(scores.values["ami"].value, 3)
        1.0
    """

    def on_items(self, assignments: Tensor, labels: Tensor) -> Tensor:  # [N]
        cell, cluster, label, total = contingency(assignments, labels)
        information = torch.log(cell * total / (cluster * label))  # [N], mean: I
        entropies = (torch.log(total / cluster) + torch.log(total / label)) / 2
        chance = expected_information(cluster, label)
        room = entropies.mean() - chance
        if room.abs() < 1e-12:  # one cluster and one class, or nothing but single items
            return torch.ones_like(entropies)
        ami = (information.mean() - chance) / room
        shift = information - information.mean() - ami * (entropies - entropies.mean())
        return ami + shift / room


def expected_information(cluster: Tensor, label: Tensor) -> Tensor:
    """Chance level of the mutual information, from each item's cluster size and class size [N]."""
    total = len(cluster)
    a, items_of_a = cluster.unique(return_counts=True)  # sizes and how many items live in them
    b, items_of_b = label.unique(return_counts=True)
    weight = (items_of_a / a)[:, None] * (items_of_b / b)  # pairs of a cluster and a class
    log_factorial = torch.lgamma(torch.arange(total + 2, dtype=torch.float64, device=a.device) + 1)
    result = a.new_zeros(())
    for size, pairs in zip(a.tolist(), weight, strict=True):  # over distinct sizes, not clusters
        most = int(min(size, float(b.max())))
        n = torch.arange(1, most + 1, dtype=torch.float64, device=a.device)[:, None]  # [n, 1]
        possible = (n <= b) & (n >= size + b - total)  # [n, b]
        rest = (total - size - b + n).clamp(min=0)
        log_p = (
            log_factorial[int(size)]
            + log_factorial[b.long()]
            + log_factorial[total - int(size)]
            + log_factorial[(total - b).long()]
            - log_factorial[total]
            - log_factorial[n.long()]
            - log_factorial[(size - n).long()]
            - log_factorial[(b - n).clamp(min=0).long()]
            - log_factorial[rest.long()]
        )
        term = n / total * torch.log(total * n / (size * b)) * log_p.exp()
        result += (term.masked_fill(~possible, 0.0).sum(0) * pairs).sum()
    return result

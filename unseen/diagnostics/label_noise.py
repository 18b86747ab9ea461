"""Suspected label noise: items whose neighbours agree on another label.

Formula  among the k nearest of an item: own = right labels / min(k, others of its class),
         other = most frequent other label / k; suspicion = other - own, in [-1, 1].
         Suspects have suspicion >= `threshold`, the most suspicious first, each with the label its
         neighbours suggest.
Counts   items alone in their class cannot be confirmed and are left out (suspicion NaN).
Values   k = 10, threshold 0.5: a clear majority of another class, hardly any of its own.
Use      a list to look through, not to delete by: hard classes and near-duplicates show up too.
"""

import math
from typing import Any

import torch
from torch import Tensor

from unseen.diagnostics.base import by_class
from unseen.neighbours.nearest import nearest
from unseen.neighbours.space import make_space, precise
from unseen.relevance import AnyLabels

ROWS = 2**14


class LabelNoise:
    """k: neighbours asked. threshold: suspicion from which an item is listed."""

    def __init__(self, k: int = 10, threshold: float = 0.5, normalise: bool = True) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not -1 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [-1, 1], got {threshold}")
        self.k, self.threshold, self.normalise = k, threshold, normalise

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        classes, item_class, sizes = by_class(labels, len(embeddings))
        if len(embeddings) <= self.k:
            raise ValueError(
                f"k must be below the number of items, {len(embeddings)}, got {self.k}"
            )
        with precise(embeddings.device):
            space = make_space(embeddings, normalise=self.normalise)
            _, items = nearest(space, self.k)  # [N, k]
        votes = item_class[items]
        own = (votes == item_class[:, None]).sum(1)
        other, favourite = _most_frequent(votes.masked_fill(votes == item_class[:, None], -1))
        others = sizes[item_class] - 1
        suspicion = other / self.k - own / others.clamp(min=1, max=self.k).double()
        suspicion.masked_fill_(others == 0, math.nan)
        listed = (suspicion >= self.threshold).nonzero()[:, 0]
        listed = listed[suspicion[listed].argsort(descending=True, stable=True)]
        return {
            "share": len(listed) / len(embeddings),
            "suspects": listed,
            "suggested": classes[favourite[listed].clamp(min=0)],
            "suspicion": suspicion,
        }


def _most_frequent(votes: Tensor) -> tuple[Tensor, Tensor]:  # count and value, two [N]
    """The most frequent vote of each row, the first such; votes of -1 do not count."""
    counts, winners = [], []
    for part in votes.split(ROWS):
        agreeing = (part[:, :, None] == part[:, None, :]).sum(2).masked_fill_(part < 0, 0)
        best = agreeing.max(dim=1)
        counts.append(best.values)
        winners.append(part.gather(1, best.indices[:, None])[:, 0])
    return torch.cat(counts).double(), torch.cat(winners)

"""Suspected label noise."""

import math
from typing import Any

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise

ROWS = 2**14


class LabelNoise:
    """Suspected label noise: items whose neighbours agree on another label.

    Formula:
        among the k nearest of an item: own = right labels / min(k, others of its class),
        other = most frequent other label / k; issue score = other - own, in [-1, 1].
        Label issues have a score >= `threshold`, the highest first, each with the label its
        neighbours suggest.

    Counts:
        items alone in their class cannot be confirmed and are left out (score NaN).

    Args:
        k: neighbours asked; 10.
        threshold: issue score from which an item is listed; 0.5, a clear majority of another class,
            hardly any of its own.
        normalize: cosine, or distance of raw embeddings.

    Use:
        a list to look through, not to delete by: hard classes and near-duplicates show up too.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import LabelNoise
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> LabelNoise(k=1)(embeddings, torch.tensor([0, 1, 1, 0]))["label_issues"]
        tensor([0, 1, 2, 3])
    """

    def __init__(self, k: int = 10, threshold: float = 0.5, normalize: bool = True) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not -1 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [-1, 1], got {threshold}")
        self.k, self.threshold, self.normalize = k, threshold, normalize

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        classes, item_class, sizes = by_class(labels, len(embeddings))
        if len(embeddings) <= self.k:
            raise ValueError(
                f"k must be below the number of items, {len(embeddings)}, got {self.k}"
            )
        with precise(embeddings.device):
            space = make_space(embeddings, normalize=self.normalize)
            _, items = nearest(space, self.k)  # [N, k]
        votes = item_class[items]
        own = (votes == item_class[:, None]).sum(1)
        other, favourite = _most_frequent(votes.masked_fill(votes == item_class[:, None], -1))
        others = sizes[item_class] - 1
        issue_score = other / self.k - own / others.clamp(min=1, max=self.k).double()
        issue_score.masked_fill_(others == 0, math.nan)
        listed = (issue_score >= self.threshold).nonzero()[:, 0]
        listed = listed[issue_score[listed].argsort(descending=True, stable=True)]
        return {
            "fraction": len(listed) / len(embeddings),
            "label_issues": listed,
            "suggested": classes[favourite[listed].clamp(min=0)],
            "issue_score": issue_score,
        }


def _most_frequent(votes: Tensor) -> tuple[Tensor, Tensor]:  # count and value, two [N]
    """The most frequent vote of each row, the first such; votes of -1 do not count."""
    counts, winners = [], []
    for chunk in votes.split(ROWS):
        agreeing = (chunk[:, :, None] == chunk[:, None, :]).sum(2).masked_fill_(chunk < 0, 0)
        best = agreeing.max(dim=1)
        counts.append(best.values)
        winners.append(chunk.gather(1, best.indices[:, None])[:, 0])
    return torch.cat(counts).double(), torch.cat(winners)

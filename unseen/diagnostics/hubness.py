"""Hubness."""

from typing import Any

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise


class Hubness:
    """Hubness: whether a few items are everybody's neighbours.

    Formula:
        N(i) = how many items have i among their k nearest; `skewness` = third standardised moment
        of N, `orphans` = share of items with N = 0, `largest` = max N / k.

    Paper:
        M. Radovanovic et al., Hubs in Space: Popular Nearest Neighbors in High-Dimensional Data,
        JMLR 2010, https://jmlr.org/papers/v11/radovanovic10a.html

    Args:
        k: neighbours of each item; 10.
        normalize: cosine, or distance of raw embeddings.

    Use:
        skewness near 0 is healthy; above about 2 a few hubs spoil many queries: look at them first
        (odd images, background), then at centring or a larger temperature.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Hubness
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> Hubness(k=1)(embeddings, torch.tensor([0, 0, 1, 1]))["orphans"]
        0.5
    """

    def __init__(self, k: int = 10, normalize: bool = True) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k, self.normalize = k, normalize

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        if len(embeddings) <= self.k:
            raise ValueError(
                f"k must be below the number of items, {len(embeddings)}, got {self.k}"
            )
        with precise(embeddings.device):
            space = make_space(embeddings, normalize=self.normalize)
            _, items = nearest(space, self.k)  # [N, k]
        count = torch.bincount(items.flatten(), minlength=len(embeddings))
        centered = count.double() - self.k  # every list has k places, so the mean is k
        std = centered.square().mean().sqrt()
        skewness = float(centered.pow(3).mean() / std**3) if std > 0 else 0.0
        return {
            "skewness": skewness,
            "orphans": float((count == 0).double().mean()),
            "largest": float(count.max()) / self.k,
            "counts": count,
        }

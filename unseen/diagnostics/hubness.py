"""Hubness: whether a few items are everybody's neighbours.

Paper    M. Radovanovic et al., Hubs in Space: Popular Nearest Neighbors in High-Dimensional Data,
         JMLR 2010, https://jmlr.org/papers/v11/radovanovic10a.html
Formula  N(i) = how many items have i among their k nearest; `skewness` = third standardised moment
         of N, `orphans` = share of items with N = 0, `largest` = max N / k.
Values   k = 10.
Use      skewness near 0 is healthy; above about 2 a few hubs spoil many queries: look at them first
         (odd pictures, background), then at centring or a larger temperature.
"""

from typing import Any

import torch
from torch import Tensor

from unseen.neighbours.nearest import nearest
from unseen.neighbours.space import make_space, precise
from unseen.relevance import AnyLabels


class Hubness:
    """k: neighbours looked at. normalise: cosine, or distance of raw embeddings."""

    def __init__(self, k: int = 10, normalise: bool = True) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.k, self.normalise = k, normalise

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        if len(embeddings) <= self.k:
            raise ValueError(
                f"k must be below the number of items, {len(embeddings)}, got {self.k}"
            )
        with precise(embeddings.device):
            space = make_space(embeddings, normalise=self.normalise)
            _, items = nearest(space, self.k)  # [N, k]
        count = torch.bincount(items.flatten(), minlength=len(embeddings))
        centred = count.double() - self.k  # every list has k places, so the mean is k
        std = centred.square().mean().sqrt()
        skewness = float(centred.pow(3).mean() / std**3) if std > 0 else 0.0
        return {
            "skewness": skewness,
            "orphans": float((count == 0).double().mean()),
            "largest": float(count.max()) / self.k,
            "counts": count,
        }

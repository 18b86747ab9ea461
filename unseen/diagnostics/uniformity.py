"""Uniformity."""

import math

import torch
from torch import Tensor

from unseen.core.geometry import squared_distance
from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import prepared

ROWS = 1024


class Uniformity:
    """Uniformity: how evenly the embeddings cover the sphere.

    Formula:
        log of the mean over pairs of exp(-2 |x - y|^2), unit embeddings.

    Paper:
        T. Wang and P. Isola, Understanding Contrastive Representation Learning through Alignment
        and Uniformity on the Hypersphere, ICML 2020, https://arxiv.org/abs/2005.10242

    Args:
        most: items that count; 10,000 are drawn where there are more.
        seed: of the draw.

    Values:
        random directions: -1.58 in 2 dimensions, -3.08 in 8, -3.94 in 128, never below -4; a
        collapsed space: 0.

    Use:
        with alignment: a good space has both small.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Uniformity
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Uniformity()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['uniformity']
    """

    def __init__(self, most: int = 10_000, seed: int = 0) -> None:
        if most < 2:
            raise ValueError(f"most must be at least 2, got {most}")
        self.most, self.seed = most, seed

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        if len(x) > self.most:
            generator = torch.Generator().manual_seed(self.seed)
            x = x[torch.randperm(len(x), generator=generator)[: self.most].to(x.device)]
        if len(x) < 2:
            return {"uniformity": math.nan}
        parts = []
        for first in range(0, len(x), ROWS):  # blocks on and above the diagonal
            energy = -2 * squared_distance(x[first : first + ROWS], x[first:])
            past = torch.ones_like(energy, dtype=torch.bool).tril_()  # pairs met before, and itself
            parts.append(energy.masked_fill_(past, -math.inf).flatten().logsumexp(0))
        log_pairs = math.log(len(x) * (len(x) - 1) / 2)
        return {"uniformity": float(torch.stack(parts).logsumexp(0)) - log_pairs}

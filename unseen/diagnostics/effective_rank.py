"""Effective rank."""

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import prepared, singular_values


class EffectiveRank:
    """Effective rank: how many directions the embeddings really use.

    Formula:
        p = s / sum of s over the singular values s of the unit embeddings:
            effective_rank = exp(-sum of p log p), between 1 and D
            participation  = (sum of s^2)^2 / sum of s^4: the same idea on variances, stricter

    Paper:
        O. Roy and M. Vetterli, The Effective Rank, EUSIPCO 2007

    Args:
        centered: take the mean away first; False, as the spectral decay.
        normalize: unit embeddings.

    Use:
        live, against collapse: falling towards 1 means that all embeddings become one vector (or,
        centred, one line).

    Example:
        >>> import torch
        >>> from unseen.diagnostics import EffectiveRank
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(EffectiveRank()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['effective_rank', 'participation', 'size']
    """

    def __init__(self, centered: bool = False, normalize: bool = True) -> None:
        self.centered, self.normalize = centered, normalize

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings, self.normalize)
        sigma = singular_values(x - x.mean(0) if self.centered else x)
        if sigma[0] == 0:
            return {"effective_rank": 0.0, "participation": 0.0, "size": float(len(sigma))}
        p = sigma / sigma.sum()
        entropy = -torch.special.xlogy(p, p).sum()
        power = sigma.square()
        return {
            "effective_rank": float(entropy.exp()),
            "participation": float(power.sum().square() / power.square().sum()),
            "size": float(len(sigma)),
        }

"""Effective rank: how many directions the embeddings really use.

Paper    O. Roy and M. Vetterli, The Effective Rank, EUSIPCO 2007
Formula  p = s / sum of s over the singular values s of the unit embeddings:
             effective_rank = exp(-sum of p log p), between 1 and D
             participation  = (sum of s^2)^2 / sum of s^4: the same idea on variances, stricter
Values   not centred by default, as the spectral decay.
Use      live, against collapse: falling towards 1 means that all embeddings become one vector (or,
         centred, one line).
"""

import torch
from torch import Tensor

from unseen.diagnostics.base import prepared, singular_values
from unseen.relevance import AnyLabels


class EffectiveRank:
    """centred: take the mean away first. normalise: unit embeddings."""

    def __init__(self, centred: bool = False, normalise: bool = True) -> None:
        self.centred, self.normalise = centred, normalise

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings, self.normalise)
        sigma = singular_values(x - x.mean(0) if self.centred else x)
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

"""Spectral decay rho: how far the singular values are from being all alike.

Paper    K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473
Formula  singular values s of the N x D matrix of unit embeddings, not centred, not squared; the
         largest `dropped` left out; p = s / sum of s over the m that remain:
             rho         = KL(uniform | p) = -log m - 1/m sum of log p
             rho_reverse = KL(p | uniform) =  log m + sum of p log p
Values   dropped 1 (the paper's figure 5). p is held above 1e-12, where rho would explode (fewer
         items than dimensions, dead dimensions); `num_clamped` says how many were.
Use      on training embeddings. Small: many directions in use, which goes with generalisation.
"""

import math
from typing import Any

import torch
from torch import Tensor

from unseen.diagnostics.base import prepared, singular_values
from unseen.relevance import AnyLabels


class Spectrum:
    """dropped: largest singular values left out. normalise: unit embeddings."""

    def __init__(self, dropped: int = 1, normalise: bool = True) -> None:
        if dropped < 0:
            raise ValueError(f"dropped must be at least 0, got {dropped}")
        self.dropped, self.normalise = dropped, normalise

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        sigma = singular_values(prepared(embeddings, self.normalise))
        if len(sigma) <= self.dropped:
            raise ValueError(f"dropped must be below the size {len(sigma)}, got {self.dropped}")
        return spectral_decay(sigma, self.dropped) | {"singular_values": sigma}


def spectral_decay(sigma: Tensor, dropped: int = 1) -> dict[str, Any]:
    """Both divergences of falling singular values from uniform ones."""
    rest = sigma[dropped:].double()
    total = rest.sum()
    if total == 0:
        return {"rho": math.nan, "rho_reverse": math.nan, "num_clamped": len(rest)}
    p = (rest / total).clamp(min=1e-12)
    log_m = math.log(len(rest))
    return {
        "rho": float(-log_m - torch.log(p).mean()),
        "rho_reverse": float(log_m + (p * torch.log(p)).sum()),
        "num_clamped": int((rest / total < 1e-12).sum()),
    }

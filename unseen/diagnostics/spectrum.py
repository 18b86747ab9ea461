"""Spectral decay."""

import math
from typing import Any

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import prepared, singular_values


class Spectrum:
    """Spectral decay rho: how far the singular values are from being all alike.

    Formula:
        singular values s of the N x D matrix of unit embeddings, not centred, not squared; the
        largest `dropped` left out; p = s / sum of s over the m that remain:
            rho         = KL(uniform | p) = -log m - 1/m sum of log p
            rho_reverse = KL(p | uniform) =  log m + sum of p log p

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Args:
        dropped: largest singular values left out; 1 (the paper's figure 5).
        normalize: unit embeddings.

    Notes:
        p is held above 1e-12, where rho would explode (fewer items than dimensions, dead
        dimensions); `num_clamped` says how many were.

    Use:
        on training embeddings. Small: many directions in use, which goes with generalisation.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Spectrum
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Spectrum()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['num_clamped', 'rho', 'rho_reverse', 'singular_values']
    """

    def __init__(self, dropped: int = 1, normalize: bool = True) -> None:
        if dropped < 0:
            raise ValueError(f"dropped must be at least 0, got {dropped}")
        self.dropped, self.normalize = dropped, normalize

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        sigma = singular_values(prepared(embeddings, self.normalize))
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

"""Frechet-matching sampler (FRD)."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.samplers.embedded.base import MatchingSampler


class FrechetMatchingSampler(MatchingSampler):
    """Frechet matching (FRD): the batch that is, as a Gaussian, nearest to a large pool.

    Formula:
        means m, m* and covariances S, S* (divided by count - 1) of a candidate and the pool; of
        some random candidates the one with the smallest

            |m - m*|^2 + Tr S + Tr S* - 2 Tr (S S*)^(1/2)

        With H = (S*)^(1/2) and the centred candidate B, the last trace is the sum of the singular
        values of B H / sqrt(count - 1): exact although S is singular when a batch has fewer items
        than dimensions, and from the smaller of two Gram matrices. In float64.
        (The released code adds 1e-8 to the diagonal of a general square root and drops imaginary
        parts; it cannot select this sampler, whose name it does not import.)

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        per_class: items of a class in a batch; 2 (paper).
        pool_size: rows of the pool; 1024 (paper), 512 (code).
        num_candidates: random batches to choose from; 10 (code).
        refresh_every: epochs between full passes through the network; 0: the first only.
        normalize: compare unit embeddings.
        seed: of all draws.

    Use:
        a study of batches; with m_per_class (2 per class) the best one of the paper.

    Example:
        >>> import numpy as np, torch
        >>> from unseen.samplers import FrechetMatchingSampler
        >>> sampler = FrechetMatchingSampler(np.arange(40), np.arange(40) // 4, 8, pool_size=16)
        >>> sampler.fill(torch.randn(40, 3))
        >>> [len(batch) for batch in sampler]
        [8, 8, 8, 8, 8]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"pool_size": 512},
    }

    def costs(self, pool: Tensor, candidates: Tensor) -> Tensor:
        pool = pool.double()
        return frechet(pool[candidates], pool)


def frechet(sets: Tensor, pool: Tensor) -> Tensor:  # [m, b, D], [p, D] -> [m], float64
    """The squared Frechet distance of each set to the pool."""
    mean, root = pool.mean(dim=0), _root_of_covariance(pool)
    means = sets.mean(dim=1)
    centered = sets - means[:, None]  # [m, b, D]
    count = max(1, sets.shape[1] - 1)
    seen = centered @ root  # [m, b, D]
    wide = seen.shape[1] < seen.shape[2]
    gram = seen @ seen.mT if wide else seen.mT @ seen
    overlap = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().sum(dim=1) / count**0.5
    spread = centered.square().sum(dim=(1, 2)) / count
    return (means - mean).square().sum(dim=1) + spread + root.square().sum() - 2 * overlap


def _root_of_covariance(rows: Tensor) -> Tensor:  # [D, D], symmetric
    centered = rows - rows.mean(dim=0)
    values, vectors = torch.linalg.eigh(centered.T @ centered / max(1, len(rows) - 1))
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T

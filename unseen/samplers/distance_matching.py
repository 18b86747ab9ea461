"""Distance-matching sampler (DDM)."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.core.geometry import distance
from unseen.samplers.embedded.base import MatchingSampler

NUM_BINS = 50


class DistanceMatchingSampler(MatchingSampler):
    """Distance matching (DDM): the batch whose distances spread most like those of a large pool.

    Formula:
        histograms of all pairwise Euclidean distances, 50 equal bins over the pool's range; of
        some random candidates the one with the smallest earth mover's distance to the pool's
        histogram,

            W = bin width * sum over bins of |cumulated candidate - cumulated pool|

        plus, with `moments` > 0, that many times |mean - pool mean| + |deviation - pool
        deviation|, vectors over the dimensions. (The released code hands bin heights to the earth
        mover's distance as if they were samples, which makes it blind to where the bins lie.)

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
        moments: weight of the differences of mean and deviation; 0. The code adds them; its weights
            belong to its own distance, ours start at 1.
        refresh_every: epochs between full passes through the network; 0: the first only.
        normalize: compare unit embeddings.
        seed: of all draws.

    Use:
        a study of batches; pool and candidates as in `embedded/base.py`.

    Example:
        >>> import numpy as np, torch
        >>> from unseen.samplers import DistanceMatchingSampler
        >>> sampler = DistanceMatchingSampler(np.arange(40), np.arange(40) // 4, 8, pool_size=16)
        >>> sampler.fill(torch.randn(40, 3))
        >>> [len(batch) for batch in sampler]
        [8, 8, 8, 8, 8]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"pool_size": 512, "moments": 1.0},
    }

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 2,
        pool_size: int = 1024,
        num_candidates: int = 10,
        moments: float = 0.0,
        refresh_every: int = 0,
        normalize: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            items,
            labels,
            batch_size,
            per_class,
            pool_size,
            num_candidates,
            refresh_every,
            normalize,
            seed,
        )
        if moments < 0:
            raise ValueError(f"moments must be 0 or more, got {moments}")
        self.moments = moments

    def costs(self, pool: Tensor, candidates: Tensor) -> Tensor:
        bins, width = binned(distance(pool))
        inside = bins[candidates[:, :, None], candidates[:, None, :]]  # [m, b, b]
        cost = earth_movers(histograms(inside), histograms(bins[None]), width)
        if self.moments:
            rows = pool[candidates]  # [m, b, D]
            cost += self.moments * (
                (rows.mean(dim=1) - pool.mean(dim=0)).norm(dim=1)
                + (rows.std(dim=1) - pool.std(dim=0)).norm(dim=1)
            )
        return cost


def binned(dist: Tensor) -> tuple[Tensor, float]:  # [p, p] int64
    """The bin of each distance between two different items, and the bins' width. An item's distance
    to
    itself gets a bin of its own, the last: it belongs to no histogram."""
    highest = float(dist.max())
    lowest = float(dist.fill_diagonal_(highest).min())
    width = (highest - lowest) / NUM_BINS
    scale = 1 / width if width > 0 else 0.0
    bins = dist.sub_(lowest).mul_(scale).clamp_(max=NUM_BINS - 1).long()
    return bins.fill_diagonal_(NUM_BINS), width


def histograms(bins: Tensor) -> Tensor:  # [m, k, k] -> [m, NUM_BINS]
    """The share of each bin, one histogram per matrix of bins."""
    every = NUM_BINS + 1
    shifted = bins + every * torch.arange(len(bins))[:, None, None]
    counts = torch.bincount(shifted.flatten(), minlength=every * len(bins))
    inner = counts.view(len(bins), every)[:, :NUM_BINS].double()
    return inner / inner.sum(dim=1, keepdim=True)


def earth_movers(first: Tensor, second: Tensor, width: float) -> Tensor:  # [..., bins] -> [...]
    """What it costs to turn one histogram into another: mass times the way it moves."""
    return width * (first - second).cumsum(dim=-1).abs().sum(dim=-1)

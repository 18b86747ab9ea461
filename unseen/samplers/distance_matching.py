"""Distance matching: the batch whose distances are spread most like those of a large pool (DDM).

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473
Formula  histograms of all pairwise Euclidean distances, 50 equal bins over the pool's range; of
         some random candidates the one with the smallest earth mover's distance to the pool's
         histogram,

             W = bin width * sum over bins of |cumulated candidate - cumulated pool|

         plus, with `moments` > 0, that many times |mean - pool mean| + |deviation - pool
         deviation|, vectors over the dimensions. (The released code hands bin heights to the earth
         mover's distance as if they were samples, which makes it blind to where the bins lie.)
Values   per_class 2, pool 1024 (paper), 10 candidates (code), moments 0. The code has a pool of 512
         and adds the moments; its weights belong to its own distance, ours start at 1.
Use      a study of batches; see embedded/base.py for pool and candidates.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.contracts import IntArray
from unseen.geometry import distance
from unseen.samplers.embedded.base import MatchingSampler

NUM_BINS = 50


class DistanceMatching(MatchingSampler):
    """moments: what differences of mean and deviation weigh beside the earth mover's distance."""

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
        normalise: bool = True,
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
            normalise,
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

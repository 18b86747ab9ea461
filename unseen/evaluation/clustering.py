"""k-means in blocks: the clusters that NMI, AMI and F1 compare with the classes.

    starts      centres are drawn with probability proportional to the squared distance from those
                already there (k-means++), several at a time: each round adds an eighth of what is
                there, so the number of rounds grows with log k
    rounds      assign every item to the nearest centre, move each centre to the mean of its items;
                until nothing moves, at most `iterations` times
    empty       a cluster that lost all its items restarts at an item far from its own centre
    several     `starts` independent runs from one generator; a score is reported as their mean and
                spread, since the start alone moves NMI by half a point

Distances are Euclidean, on unit embeddings when the evaluation is by cosine. Items that all
coincide form one cluster. Same seed, same clusters.
Time: items x clusters x size x iterations multiply-adds; of many clusters most of them are in
integers (neighbors/center_assignment.py), with the same clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.core.geometry import full_precision
from unseen.neighbors.center_assignment import integers_of, nearest_centers, pays
from unseen.neighbors.certified import ROWS, Integers
from unseen.neighbors.space import precise, require_finite, to_sphere

BLOCK = 2**21  # distances held at a time


@dataclass(frozen=True)
class Clusters:
    """One run of k-means."""

    assignments: Tensor  # [N] int64
    centers: Tensor  # [K, D]
    inertia: float  # sum of squared distances to the centres


@dataclass(frozen=True)
class _Items:
    """What is assigned, as all starts share it."""

    x: Tensor  # [N, D]
    squares: Tensor  # [N]
    coded: Sequence[Integers]  # the same in integers, where many clusters make them worth it

    @classmethod
    def of(cls, x: Tensor, num_clusters: int) -> "_Items":
        return cls(x, x.square().sum(dim=1), integers_of(x) if pays(x, num_clusters) else ())


def cluster(
    embeddings: Tensor,
    num_clusters: int,
    *,
    starts: int = 3,
    iterations: int = 100,
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Clusters]:
    """k-means from several starts, in the order of the starts; the caller averages or picks."""
    require_finite(embeddings, "embeddings")
    if not 1 <= num_clusters <= len(embeddings):
        raise ValueError(
            f"num_clusters must lie in [1, {len(embeddings)}], the number of items, "
            f"got {num_clusters}"
        )
    if starts < 1 or iterations < 1:
        raise ValueError(f"starts and iterations must be at least 1, got {starts}, {iterations}")
    generator = torch.Generator().manual_seed(seed)
    with precise(embeddings.device):
        x = full_precision(embeddings.detach())
        items = _Items.of(to_sphere(x) if normalize else x, num_clusters)
        runs = []
        for start in range(starts):
            runs.append(_k_means(items, num_clusters, iterations, generator))
            if progress is not None:
                progress(start + 1, starts)
    return runs


def _k_means(
    items: _Items, num_clusters: int, iterations: int, generator: torch.Generator
) -> Clusters:
    x = items.x
    if (x - x[0]).abs().max() <= 1e-6 * x.abs().max():  # rounding must not make clusters of copies
        return Clusters(torch.zeros_like(items.squares, dtype=torch.int64), x[:1], 0.0)
    centers = _seed(items, num_clusters, generator)
    nearest, dist = _assign(items, centers)
    for _ in range(iterations):
        centers = _means(x, centers, nearest, dist)
        before = nearest
        nearest, dist = _assign(items, centers)
        if torch.equal(nearest, before):
            break
    return Clusters(nearest, centers, float(dist.sum(dtype=torch.float64)))


def _assign(items: _Items, centers: Tensor) -> tuple[Tensor, Tensor]:  # two [N]
    """Nearest centre of each item and the squared distance to it."""
    x = items.x
    if pays(x, len(centers)):
        nearest = nearest_centers(x, centers, items.coded)
        parts = zip(x.split(ROWS), nearest.split(ROWS), strict=True)
        return nearest, torch.cat([(a - centers[b]).square().sum(dim=1) for a, b in parts])
    half = centers.square().sum(dim=1) / -2
    blocks = x.split(max(1, BLOCK // len(centers)))
    best = [torch.addmm(half, rows, centers.T).max(dim=1) for rows in blocks]
    score, nearest = (torch.cat(column) for column in zip(*best, strict=True))
    return nearest, (items.squares - 2 * score).clamp_(min=0)


def _means(x: Tensor, centers: Tensor, nearest: Tensor, dist: Tensor) -> Tensor:  # [K, D]
    """Means of the clusters; empty ones move to the items that are farthest from their centres."""
    count = torch.bincount(nearest, minlength=len(centers))
    moved = torch.zeros_like(centers).index_add_(0, nearest, x)
    moved /= count.clamp(min=1)[:, None]
    empty = (count == 0).nonzero()[:, 0]
    if len(empty):
        moved[empty] = x[dist.topk(len(empty)).indices]
    return moved


def _seed(items: _Items, num_clusters: int, generator: torch.Generator) -> Tensor:
    """First centres [K, D]: distinct items, far from each other."""
    x = items.x
    first = torch.randint(0, len(x), (1,), generator=generator).to(x.device)
    chosen = first
    _, dist = _assign(items, x[first])
    dist[first] = 0
    while len(chosen) < num_clusters:
        wanted = min(max(1, len(chosen) // 8), num_clusters - len(chosen))
        fresh = _draw(dist, chosen, wanted, generator)
        chosen = torch.cat([chosen, fresh])
        dist = torch.minimum(dist, _assign(items, x[fresh])[1])
        dist[chosen] = 0
    return x[chosen]


def _draw(dist: Tensor, chosen: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """Items not chosen yet, by squared distance; any of them when all distances are 0 (copies)."""
    # The largest of u^(1/w) are a weighted draw without replacement.
    uniform = torch.rand(len(dist), generator=generator, dtype=torch.float64).to(dist.device)
    key = uniform.log() / dist.double().clamp(min=1e-30)
    key[chosen] = -torch.inf
    return key.topk(wanted).indices

"""Unlabelled images in groups of their kind.

    k-means   with the number of groups given, or the one among a few (powers of two and between)
              whose groups are tightest beside their next nearest: the highest mean silhouette of
              the centres, (b - a) / max(a, b) with a the distance of an image to its own centre
              and b to the next
    density   images linked to one of their nearest that also has them among its nearest and is
              as close as `similarity`; groups are what hangs together, the rest stays alone

Groups are listed from the largest, their images from the most typical.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.evaluation.clustering import Clusters, cluster
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise, to_sphere

LINKS = 10
MOST_GROUPS = 1024  # tried when the number is not given
BLOCK = 4096


@dataclass(frozen=True)
class Groups:
    """Positions of the images of each group; those in none."""

    members: list[NDArray[np.int64]]
    alone: NDArray[np.int64]
    why: str


def by_k_means(
    vectors: NDArray[np.float32],
    number: int | None = None,
    *,
    normalize: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Groups:
    """`number` None: chosen by the silhouette."""
    x = torch.from_numpy(vectors)
    tried = [number] if number is not None else _sizes(len(x))
    best: tuple[float, int, Clusters] | None = None
    for done, count in enumerate(tried, start=1):
        runs = cluster(x, count, starts=1 if number is None else 3, normalize=normalize, seed=seed)
        run = min(runs, key=lambda made: made.inertia)
        value = _silhouette(to_sphere(x) if normalize else x, run) if number is None else 0.0
        if best is None or value > best[0]:
            best = value, count, run
        if progress is not None:
            progress(done, len(tried))
    assert best is not None
    why = "as asked" if number is not None else f"silhouette {best[0]:.3f}, the best of {tried}"
    points = to_sphere(x) if normalize else x
    center = best[2].centers[best[2].assignments]
    distance = (points - center).square().sum(dim=1).numpy()
    return _listed(best[2].assignments.numpy(), distance, why, least=1)


def by_density(
    vectors: NDArray[np.float32], similarity: float, *, normalize: bool = True
) -> Groups:
    """Mutual neighbours that are at least as similar hang together."""
    x = torch.from_numpy(vectors)
    with precise(x.device):
        space = make_space(x, normalize=normalize)
        values, result = nearest(space, min(LINKS, len(x) - 1))
    row = torch.arange(len(x))[:, None].expand_as(result)
    linked = (result >= 0) & (values >= similarity)
    pairs = row[linked] * len(x) + result[linked]
    back = result[linked] * len(x) + row[linked]
    mutual = pairs[torch.isin(pairs, back)].numpy()
    ones = np.ones(len(mutual), dtype=bool)
    graph = coo_matrix((ones, (mutual // len(x), mutual % len(x))), shape=(len(x), len(x)))
    _, group = connected_components(graph, directed=False)
    why = f"mutual neighbours of similarity {similarity:.4f} or more"
    return _listed(group, -values[:, 0].numpy(), why, least=2)


def _sizes(count: int) -> list[int]:
    """2, 3, 4, 6, 8, 12, ... up to half of the images."""
    most = max(2, min(MOST_GROUPS, count // 2))
    sizes = sorted({round(2 ** (power / 2)) for power in range(2, 2 * math.ceil(math.log2(most)))})
    return [size for size in sizes if size <= most] or [1]


def _silhouette(points: Tensor, run: Clusters) -> float:
    """Of centres instead of all pairs: images x groups instead of images squared."""
    if len(run.centers) < 2:
        return 0.0
    total = 0.0
    for block, assigned in zip(points.split(BLOCK), run.assignments.split(BLOCK), strict=True):
        distance = torch.cdist(block, run.centers)  # [n, K]
        near = distance.gather(1, assigned[:, None])[:, 0]
        other = distance.scatter(1, assigned[:, None], torch.inf).amin(dim=1)
        total += float(((other - near) / torch.maximum(other, near).clamp(min=1e-12)).sum())
    return total / len(points)


def _listed(
    group: NDArray[np.int64], distance: NDArray[np.float32], why: str, least: int
) -> Groups:
    order = np.lexsort((distance, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    groups = np.split(order, starts[1:])
    members = sorted((each for each in groups if len(each) >= least), key=len, reverse=True)
    alone = [each for each in groups if len(each) < least]
    rest = np.concatenate(alone) if alone else np.zeros(0, dtype=np.int64)
    return Groups([each.astype(np.int64) for each in members], np.sort(rest).astype(np.int64), why)

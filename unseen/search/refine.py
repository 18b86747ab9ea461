"""After the network: ways to better neighbours without training.

    whitening      H. Jégou, O. Chum, Negative evidences and co-occurrences in image retrieval,
                   ECCV 2012: principal components of training vectors, each to unit variance
                   (moved by `shrinkage` to their mean), then unit length; labels are not used
    expansion      F. Radenovic et al., TPAMI 2019: a query becomes the sum of itself and its `top`
                   neighbours, each times its similarity (at least 0) to the power of `power`
    augmentation   the same for every image of the collection
    k-reciprocal   Z. Zhong et al., CVPR 2017, https://arxiv.org/abs/1701.08398: neighbours count
                   that have each other among their `k1` nearest; sets of them, weighted by
                   exp(-distance) and averaged over the `k2` nearest, are compared by Jaccard's
                   distance; that and `original` times the distance itself order the list anew

Vectors are unit ones here; `distance` is 1 - cosine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.metric_names import parse_metric
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.base import Retrieval
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space, precise, to_sphere

BLOCK = 64  # queries whose candidates are compared at a time
TOP = 3  # neighbours that expand a query
K1, K2 = 20, 6  # of k-reciprocal re-ranking
SPARE = 100  # candidates beyond what a metric looks at

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Whitening:
    """Made by `whitening`; call it on vectors [n, D]."""

    mean: Tensor  # [D]
    matrix: Tensor  # [D, size]

    def __call__(self, vectors: Tensor) -> Tensor:  # [n, size]
        return to_sphere((vectors.double() - self.mean) @ self.matrix).to(vectors.dtype)


def whitening(vectors: Tensor, size: int | None = None, shrinkage: float = 0.1) -> Whitening:
    """`size`: components that stay. `shrinkage`: 0 trusts every variance, 1 only rotates."""
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage must lie in [0, 1], got {shrinkage}")
    if size is not None and not 1 <= size <= vectors.shape[1]:
        raise ValueError(f"size must lie in [1, {vectors.shape[1]}], got {size}")
    x = vectors.double()
    mean = x.mean(dim=0)
    variances, directions = torch.linalg.eigh((x - mean).T @ (x - mean) / max(1, len(x) - 1))
    variances = (1 - shrinkage) * variances.clamp(min=0) + shrinkage * variances.mean()
    order = variances.argsort(descending=True)[:size]
    scale = variances[order].clamp(min=1e-12).rsqrt()
    return Whitening(mean, directions[:, order] * scale)


def expanded(vectors: Tensor, near: Tensor, sim: Tensor, power: float = 3.0) -> Tensor:
    """Unit queries [Q, D] with their neighbours' vectors [Q, top, D] and similarities [Q, top]."""
    weights = sim.clamp(min=0).pow(power)[:, :, None]
    return to_sphere(vectors + (weights * near).sum(dim=1))


def augmented(vectors: Tensor, top: int = 3, power: float = 3.0) -> Tensor:
    """Every unit vector [n, D] drawn to its nearest others."""
    sim, result = neighbors(vectors, top)
    return expanded(vectors, vectors[result], sim, power)


def neighbors(vectors: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Similarities and positions, two [n, top], of the nearest others of unit vectors [n, D]."""
    if not 1 <= top < len(vectors):
        raise ValueError(f"top must lie in [1, {len(vectors) - 1}], got {top}")
    with precise(vectors.device):
        return nearest(make_space(vectors), top)


def reranked(
    vectors: Tensor, candidates: Tensor, k1: int = 20, k2: int = 6, original: float = 0.3
) -> Tensor:
    """The candidates [m, K] of the first unit vectors of [n, D] in their new order."""
    if not 1 <= k2 <= k1 < len(vectors):
        raise ValueError(f"1 <= k2 <= k1 < {len(vectors)} must hold, got k1 {k1}, k2 {k2}")
    if not 0 <= original <= 1:
        raise ValueError(f"original must lie in [0, 1], got {original}")
    _, result = neighbors(vectors, k1)
    nearby = np.concatenate([np.arange(len(vectors))[:, None], result.numpy()], axis=1)
    features = _features(vectors, nearby, k1, k2)
    request = candidates.numpy()
    order = np.empty_like(request)
    for start in range(0, len(request), BLOCK):
        rows = slice(start, min(start + BLOCK, len(request)))
        sim = torch.einsum("qd,qkd->qk", vectors[rows], vectors[candidates[rows]])
        jaccard = _jaccard(features, np.arange(len(request))[rows], request[rows])
        distance = (1 - original) * jaccard + original * (1 - sim.double().numpy())
        best = np.argsort(distance, axis=1, kind="stable")
        order[rows] = np.take_along_axis(request[rows], best, axis=1)
    return torch.from_numpy(order)


def reranked_scores(
    vectors: Tensor, labels: Tensor, metrics: Sequence[str], k1: int, k2: int
) -> dict[str, float]:
    """Means of metrics after k-reciprocal re-ranking of unit vectors [n, D] with labels [n]."""
    made = {name: parse_metric(name) for name in metrics}
    most = int(labels.bincount().max())
    depths = [m.depth(most) for m in made.values() if isinstance(m, Retrieval)]
    result = retrieve(vectors, labels, min(len(labels) - 1, max(depths) + SPARE))
    order = reranked(vectors, result.indices, k1, k2)
    lists = replace(result, indices=order, matches=labels[order] == labels[:, None], tied=None)
    return {
        name: float(metric(lists).nanmean())
        for name, metric in made.items()
        if isinstance(metric, Retrieval)
    }


def refined_scores(
    kind: Literal["k-reciprocal", "expansion"],
    vectors: Tensor,
    labels: Tensor,
    metrics: Sequence[str],
) -> dict[str, float]:
    """Means of metrics when unit vectors [n, D] ask each other, refined in one way."""
    if kind == "k-reciprocal":
        return reranked_scores(vectors, labels, metrics, K1, K2)
    sim, near = neighbors(vectors, TOP)
    result = evaluate(
        expanded(vectors, vectors[near], sim),
        labels,
        gallery_embeddings=vectors,
        gallery_labels=labels,
        positions=torch.arange(len(labels)),
        metrics=metrics,
        resamples=0,
    )
    return {name: result.values[name].value for name in metrics}


def _features(vectors: Tensor, nearby: NDArray[np.int64], k1: int, k2: int) -> sparse.csr_matrix:
    """Weights of each image's reciprocal neighbours [n, n], rows that sum to 1."""
    mutual, half = _reciprocal(nearby, k1), _reciprocal(nearby, round(k1 / 2))
    shared = (mutual @ half.T).multiply(mutual).tocoo()  # of R(p) and R(q, k1/2), for q in R(p)
    sizes = np.asarray(half.sum(axis=1)).ravel()
    enough = shared.data >= 2 / 3 * sizes[shared.col]
    taken = sparse.csr_matrix(
        (np.ones(enough.sum()), (shared.row[enough], shared.col[enough])), shape=mutual.shape
    )
    sets = (mutual + taken @ half).tocoo()
    left, right = torch.from_numpy(sets.row).long(), torch.from_numpy(sets.col).long()
    sim = (vectors[left].double() * vectors[right].double()).sum(dim=1)
    weights = sparse.csr_matrix((np.exp(sim.numpy() - 1), (sets.row, sets.col)), shape=sets.shape)
    weights = sparse.diags(1 / np.asarray(weights.sum(axis=1)).ravel()) @ weights
    return (_members(nearby[:, :k2]) / k2 @ weights).tocsr()


def _reciprocal(nearby: NDArray[np.int64], k: int) -> sparse.csr_matrix:
    members = _members(nearby[:, : k + 1])
    return members.multiply(members.T).tocsr()


def _members(nearby: NDArray[np.int64]) -> sparse.csr_matrix:
    count, width = nearby.shape
    rows = np.repeat(np.arange(count), width)
    return sparse.csr_matrix((np.ones(rows.size), (rows, nearby.ravel())), shape=(count, count))


def _jaccard(
    features: sparse.csr_matrix, queries: NDArray[np.int64], candidates: NDArray[np.int64]
) -> Matrix:  # [Q, K]
    theirs = features[candidates.ravel()]
    pair = np.repeat(np.arange(candidates.size), np.diff(theirs.indptr))
    ours = features[queries].toarray()[pair // candidates.shape[1], theirs.indices]
    shared = np.bincount(pair, np.minimum(ours, theirs.data), minlength=candidates.size)
    return (1 - shared / (2 - shared)).reshape(candidates.shape)

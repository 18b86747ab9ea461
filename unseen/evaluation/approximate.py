"""Retrieval metrics through a faiss index instead of all pairs, with the measured loss of accuracy.

The gallery is cut into cells around about 4 sqrt(n) centres; a query looks into the nearest few.
How often that finds the true nearest neighbour is measured on random queries by exact search and
stands in every result: an approximate score without that number means nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.core.extras import install_command
from unseen.evaluation.metric_names import parse_metric
from unseen.evaluation.relevance_filters import ClassFilter
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.base import Retrieval
from unseen.neighbors.space import Space, make_space, precise

TRAINED_ON = 64  # items per cell that the centres are fitted on
DEEPEST = 1000


@dataclass(frozen=True)
class Approximation:
    """Scores, and the share of `checked` queries whose true nearest neighbour the index found."""

    values: dict[str, float]
    per_query: dict[str, Tensor]  # [Q]
    result_nearest: float
    checked: int
    index: str


def approximate(
    embeddings: Tensor,
    labels: Tensor,
    *,
    gallery_embeddings: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    metrics: Sequence[str] = ("recall@1",),
    normalize: bool = True,
    cells: int = 32,
    checked: int = 1000,
    seed: int = 0,
) -> Approximation:
    """Scores of embeddings; `cells`: how many cells a query looks into."""
    wanted = {name: _shallow(name) for name in metrics}
    with precise(embeddings.device):
        space = make_space(embeddings, gallery_embeddings, normalize)
        relevance_filter = ClassFilter(space, labels, gallery_labels)
        most = int(relevance_filter.num_relevant.max())
        depth = min(max(m.depth(most) for m in wanted.values()), DEEPEST, len(space.gallery) - 1)
        index, name = _index(space, cells, seed)
        result = _neighbors(space, relevance_filter, index, depth)
    per_query = {name: metric(result) for name, metric in wanted.items()}
    request = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(seed))[
        :checked
    ]
    exact = retrieve(
        embeddings[request],
        labels[request],
        1,
        gallery_embeddings=space.gallery,
        gallery_labels=relevance_filter.gallery_labels,
        positions=request if space.symmetric else None,
        normalize=normalize,
    )
    # a copy of the nearest item is as near
    near = exact.similarities[:, 0] - result.similarities[request, 0] <= space.tolerance
    return Approximation(
        values={name: float(value.nanmean()) for name, value in per_query.items()},
        per_query=per_query,
        result_nearest=float(near.double().mean()),
        checked=len(request),
        index=name,
    )


def _shallow(name: str) -> Retrieval:
    metric = parse_metric(name)
    if not isinstance(metric, Retrieval) or metric.needs_ranks:
        raise ValueError(f"{name} needs more than near neighbours: leave --approximate out")
    return metric


def _index(space: Space, cells: int, seed: int) -> tuple[Any, str]:
    try:
        import faiss  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ValueError(f"--approximate needs faiss: {install_command('search')}") from error
    items = _rows(space.gallery if space.center is not None else space.right)
    number = max(1, min(int(4 * math.sqrt(len(items))), len(items) // 39))  # faiss warns below 39
    metric = faiss.METRIC_L2 if space.center is not None else faiss.METRIC_INNER_PRODUCT
    faiss.omp_set_num_threads(torch.get_num_threads())
    index: Any = faiss.index_factory(items.shape[1], f"IVF{number},Flat", metric)
    index.cp.seed = seed
    rng = np.random.default_rng(seed)
    index.train(items[rng.permutation(len(items))[: TRAINED_ON * number]])
    index.add(items)
    index.nprobe = min(cells, number)
    return index, f"faiss IVF{number},Flat, {index.nprobe} of {number} cells"


def _neighbors(space: Space, relevance_filter: ClassFilter, index: Any, depth: int) -> Neighbors:
    """Lists without the query itself, -1 where the cells held too few."""
    queries = _rows(space.queries if space.center is not None else space.left)
    similarities, items = (torch.from_numpy(a) for a in index.search(queries, depth + 1))
    if space.center is not None:
        similarities = -similarities
    itself = items == relevance_filter.positions[:, None]
    itself[~itself.any(1), -1] = True  # not in its own list: the last one goes instead
    others = (~itself).nonzero()[:, 1].view(len(items), depth)
    items, similarities = items.gather(1, others), similarities.gather(1, others)
    matches = relevance_filter.matches(torch.arange(len(items)), items)
    return Neighbors(items, similarities, matches, relevance_filter.num_relevant)


def _rows(x: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(x.float().numpy())

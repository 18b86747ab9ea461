"""How many of the nearest images a store finds, against exact search on images of the index."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unseen.search.backends.exact import Mask, Nearest

if TYPE_CHECKING:
    from unseen.search.index import Index

RECALL = 0.98  # of an approximate store; its effort is doubled until then
NEAREST = 10
QUERIES = 256
MOST_EFFORT = 2048


def recall_of(
    index: "Index", search: Callable[[Tensor, int, Mask | None], Nearest], num_queries: int
) -> float:
    """The share of the ten nearest of exact search that a store finds."""
    rows = np.random.default_rng(0).choice(len(index), num_queries, replace=False)
    queries = torch.from_numpy(index.row_vectors(np.flatnonzero(index.alive)[rows]))
    k = min(NEAREST, len(index))
    allowed = None if index.alive.all() else index.alive
    _, exact = index.exact.search(queries, k, allowed)
    _, result = search(queries, k, allowed)
    hits = (exact[:, :, None] == result[:, None, :]).any(dim=2)
    return float(hits.double().mean())

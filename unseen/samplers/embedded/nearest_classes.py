"""The nearest other classes of some items among all items, exactly, a block of items at a time.

A class is as near as its nearest member. A list of nearest items would not do: among many pictures
of few classes it holds the same class over and over.
"""

import numpy as np
import torch
from torch import Tensor

from unseen.contracts import IntArray
from unseen.geometry import Measure

_ENTRIES = 2**24  # of the similarities held at a time


def nearest_classes(
    rows: Tensor,  # [n, D] embeddings, those of a class behind each other
    sizes: IntArray,  # [C] how many each class has
    seeds: IntArray,  # [Q] places among the rows
    keep: int,
    similarity: Measure,
) -> IntArray:  # [Q, keep]
    """For each seed the numbers of the nearest classes but its own, nearest first."""
    starts = np.cumsum(sizes) - sizes
    own = np.searchsorted(starts, seeds, side="right") - 1
    found = np.empty((len(seeds), keep), dtype=np.int64)
    block = max(1, _ENTRIES // max(1, len(rows)))
    for first in range(0, len(seeds), block):
        some = slice(first, first + block)
        near = similarity(rows, rows[torch.from_numpy(seeds[some])])  # [n, B]
        best = torch.from_numpy(np.maximum.reduceat(near.numpy(), starts, axis=0))  # [C, B]
        best[torch.from_numpy(own[some]), torch.arange(best.shape[1])] = -torch.inf
        found[some] = best.T.topk(keep).indices.numpy()
    return found

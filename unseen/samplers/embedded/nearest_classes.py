"""The nearest other classes of some items among all items, exactly, a block of items at a time."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.neighbors.certified import LEAST, Integers, pair_products
from unseen.neighbors.exact_order import exact_pairs
from unseen.neighbors.row_sort import kth_largest
from unseen.neighbors.select import in_integers
from unseen.neighbors.space import Space, make_space

_ENTRIES = 2**24  # of the similarities integers at a time
_TOO_MANY = 5  # more than one pair in so many left by integers: floats are cheaper

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Pairs:
    """Seeds and items that may be near, by seed, then by item."""

    seed: IntArray  # [P] places in a block
    item: IntArray  # [P]
    value: Floats  # [P] similarities

    def __getitem__(self, some: NDArray[np.bool_]) -> "_Pairs":
        return _Pairs(self.seed[some], self.item[some], self.value[some])


def nearest_classes(
    rows: Tensor,  # [n, D] embeddings, those of a class behind each other
    sizes: IntArray,  # [C] how many each class has
    seeds: IntArray,  # [Q] places among the rows
    keep: int,
    normalize: bool = True,
) -> IntArray:  # [Q, keep]
    """For each seed the numbers of the nearest classes but its own, nearest first: by cosine, or by
    the distance of raw embeddings.

    A class is as near as its nearest member. (A list of nearest items would not do: among many
    images of few classes it holds the same class over and over.) Products with all items bound how
    near each class may be, in 8-bit integers where these are faster (neighbors/certified.py); what
    cannot belong to the nearest classes is left out with proof. The others are compared in floats,
    near-equals in float64 on the grid of neighbors/space.py, equals by the number of the class: the
    result does not depend on the precision of the first pass.
    """
    if keep == 0:  # a single class has no neighbours
        return np.empty((len(seeds), 0), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    whole = make_space(rows[torch.from_numpy(seeds)], rows, normalize)
    integers = Integers.of(whole.right) if in_integers(whole) else None
    result = np.empty((len(seeds), keep), dtype=np.int64)
    block = max(1, _ENTRIES // max(1, len(rows)))
    for first in range(0, len(seeds), block):
        some = slice(first, first + block)
        space, own = whole.of_queries(some), owner[seeds[some]]
        pairs = None if integers is None else _by_integers(space, integers, starts, own, keep)
        if pairs is None:
            pairs = _by_floats(space, starts, own, keep)
        pairs = pairs[owner[pairs.item] != own[pairs.seed]]
        result[some] = _listed(space, pairs, owner, keep)
    return result


def _by_integers(
    space: Space, integers: Integers, starts: IntArray, own: IntArray, keep: int
) -> _Pairs | None:
    """None: too many pairs are left."""
    mine = Integers.of(space.left)
    bound = mine.bound(integers, space.left.dtype)
    near = torch._int_mm(mine.whole, integers.whole.T)  # [B, n]
    last = _last_class(near, starts, own, keep, LEAST).numpy()
    low = last - (2 * (bound.error + space.tolerance) / bound.unit + 2)
    seed, item = _above(near, torch.from_numpy(low.clip(min=LEAST).astype(np.int32)))
    if _TOO_MANY * len(seed) > near.numel():
        return None
    value = pair_products(space.left, space.right, *map(torch.from_numpy, (seed, item)))
    return _Pairs(seed, item, value.double().numpy())


def _by_floats(space: Space, starts: IntArray, own: IntArray, keep: int) -> _Pairs:
    near = space.left @ space.right.T  # [B, n]
    last = _last_class(near, starts, own, keep, -torch.inf)
    seed, item = _above(near, last - 2 * space.tolerance)
    return _Pairs(seed, item, near.numpy()[seed, item].astype(np.float64))


def _last_class(
    near: Tensor, starts: IntArray, own: IntArray, keep: int, lowest: float
) -> Tensor:  # [B]
    """The similarity of the last of the nearest classes."""
    best = torch.from_numpy(np.maximum.reduceat(near.numpy(), starts, axis=1))  # [B, C]
    best[torch.arange(len(best)), torch.from_numpy(own)] = lowest
    return kth_largest(best, keep)


def _above(near: Tensor, low: Tensor) -> tuple[IntArray, IntArray]:
    seed, item = np.divmod(np.flatnonzero(near.numpy() >= low.numpy()[:, None]), near.shape[1])
    return seed, item


def _listed(space: Space, pairs: _Pairs, owner: IntArray, keep: int) -> IntArray:  # [B, keep]
    top, of_class = _class_best(pairs, owner)
    tops = pairs[_is_first(of_class)]
    table = np.full((len(space.left), np.bincount(tops.seed).max()), -np.inf)
    table[tops.seed, _place(tops.seed)] = top
    last = kth_largest(torch.from_numpy(table), keep).numpy()  # [B]
    stays = top >= last[tops.seed] - 2 * space.tolerance
    near_best = pairs.value >= top[of_class] - space.tolerance
    pairs = _resolved(space, pairs[stays[of_class] & near_best])
    top, of_class = _class_best(pairs, owner)
    tops = pairs[_is_first(of_class)]
    order = np.lexsort((owner[tops.item], -top, tops.seed))
    listed: IntArray = owner[tops.item][order][_place(tops.seed) < keep]
    return listed.reshape(-1, keep)


def _resolved(space: Space, pairs: _Pairs) -> _Pairs:
    """Similarities in grid units, of near-equals those of float64."""
    order = np.lexsort((-pairs.value, pairs.seed))
    value, seed = pairs.value[order], pairs.seed[order]
    near = (value[:-1] - value[1:] <= space.tolerance) & (seed[:-1] == seed[1:])
    doubtful = np.zeros(len(order), dtype=bool)
    doubtful[order[:-1][near]] = doubtful[order[1:][near]] = True
    exact = pairs.value / space.grid
    some = (torch.from_numpy(column[doubtful]) for column in (pairs.seed, pairs.item))
    exact[doubtful] = exact_pairs(space, *some).numpy()
    return _Pairs(pairs.seed, pairs.item, exact)


def _class_best(pairs: _Pairs, owner: IntArray) -> tuple[Floats, IntArray]:
    """The largest value of each class of a seed [T], and which of them a pair belongs to [P]."""
    first = np.flatnonzero(_is_first(pairs.seed) | _is_first(owner[pairs.item]))
    of_class = np.zeros(len(pairs.seed), dtype=np.int64)
    of_class[first[1:]] = 1
    return np.maximum.reduceat(pairs.value, first), of_class.cumsum()


def _is_first(sorted_: IntArray) -> NDArray[np.bool_]:
    """Where a run of equal numbers begins."""
    return np.diff(sorted_, prepend=-1) != 0


def _place(seed: IntArray) -> IntArray:
    """Of each in the run of its seed, from 0."""
    count = np.bincount(seed)
    place: IntArray = np.arange(len(seed)) - (count.cumsum() - count)[seed]
    return place

"""The nearest of some centres for every row, exact: what k-means asks in each of its rounds.

The nearest centre c of a row x is the one with the largest score x.c - |c|^2 / 2. Of a block of
scores, in 8-bit integers or in floats, the largest of each row is wrong by at most e
(neighbors/certified.py, plus the rounding of the squares), so whatever lies more than 2 e below it
is not the nearest. What is left of integers is compared in floats, what is left of floats in
float64; equals: the first. So an assignment depends neither on the precision of the first pass nor
on blocks or threads.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors import certified
from unseen.neighbors.certified import ROWS, Integers, Lengths, norms, pair_products, sum_error
from unseen.neighbors.exact_order import CHUNK
from unseen.neighbors.select import SMALL
from unseen.neighbors.threads import in_parallel

FEW = 256  # centres below which one product in floats is as fast
STRIP = 2**19  # scores at a time: they stay in a cache
TOO_MANY = 5  # more than one in so many left by integers: floats are cheaper, and float64 by them

Places = NDArray[np.int64]


class Centers:
    """Centres [K, D] that rows of the same type are compared with."""

    def __init__(self, points: Tensor, in_integers: bool) -> None:
        self.points, size = points, points.shape[1]
        self.half = points.double().square().sum(dim=1) / -2  # [K] float64
        self.rounded = self.half.to(points.dtype)
        self.whole = Integers.of(points) if in_integers else None
        self.longest = float(norms(points.numpy()).max())
        info = torch.finfo(points.dtype)
        self._fraction = sum_error(size, points.dtype) + 4 * info.eps  # |c|^2 / 2, and adding it
        self._tiny = size * info.tiny

    def error(self, norm: Lengths) -> Lengths:  # [R]
        """At least that of a score in floats, of rows of these lengths."""
        most = norm * self.longest + self.longest**2
        return self._fraction * most + self._tiny


def pays(x: Tensor, num_centers: int) -> bool:
    """Whether so much is to be compared that this is faster than one product and its maxima."""
    return x.device.type == "cpu" and num_centers >= FEW and x.numel() * num_centers >= SMALL


def integers_of(x: Tensor) -> list[Integers]:
    """The rows as integers, `ROWS` of them with one scale; nothing where floats are as fast."""
    return [Integers.of(block) for block in x.split(ROWS)] if certified.pays(x) else []


def nearest_centers(x: Tensor, points: Tensor, cached: Sequence[Integers] = ()) -> Tensor:  # [N]
    """Positions of the nearest among points [K, D]; cached: the rows x [N, D] as integers."""
    centers = Centers(points, in_integers=bool(cached))
    nearest = torch.empty(len(x), dtype=torch.int64)
    height = max(1, STRIP // len(points))

    def work(first: int) -> None:
        block, inside = divmod(first, ROWS)
        rows = slice(first, first + min(height, ROWS - inside))
        result = None
        if cached:
            mine = cached[block][inside : inside + len(x[rows])]
            result = _by_integers(x[rows], mine, centers)
        nearest[rows] = _by_floats(x[rows], centers) if result is None else result

    parts = [range(first, min(first + ROWS, len(x)), height) for first in range(0, len(x), ROWS)]
    in_parallel([first for block in parts for first in block], work, x.device)
    return nearest


def _by_integers(x: Tensor, mine: Integers, centers: Centers) -> Tensor | None:  # [R]
    """None: too much is left."""
    assert centers.whole is not None
    bound = mine.bound(centers.whole, x.dtype)
    products = torch._int_mm(mine.whole, centers.whole.whole.T)
    score = products.to(x.dtype).mul_(bound.unit).add_(centers.rounded)
    row, column = _left(score, bound.error + centers.error(mine.norm))
    if TOO_MANY * len(row) > score.numel():
        return None
    value = pair_products(x, centers.points, torch.from_numpy(row), torch.from_numpy(column))
    value = value.double().numpy() + centers.half.numpy()[column]
    low = _best(value, row) - 2 * centers.error(mine.norm)
    stays = value >= low[row]
    return _resolved(x, centers, row[stays], column[stays])


def _by_floats(x: Tensor, centers: Centers) -> Tensor:  # [R]
    score = torch.addmm(centers.rounded, x, centers.points.T)
    return _resolved(x, centers, *_left(score, centers.error(norms(x.numpy()))))


def _left(score: Tensor, error: Lengths) -> tuple[Places, Places]:
    """Row and column of what may be the largest of its row."""
    low = score.amax(dim=1).double() - 2 * torch.from_numpy(error)
    low = torch.nextafter(low.to(score.dtype), score.new_tensor(-torch.inf))
    row, column = np.divmod(np.flatnonzero(score.numpy() >= low.numpy()[:, None]), score.shape[1])
    return row, column


def _resolved(x: Tensor, centers: Centers, row: Places, column: Places) -> Tensor:  # [R]
    """The nearest of what is left of each row, in float64 where that is more than one."""
    if len(row) == len(x):
        return torch.from_numpy(column)
    if 8 * len(row) > len(x) * len(centers.half):  # one product is cheaper
        score = x.double() @ centers.points.double().T + centers.half
        return torch.from_numpy(score.numpy().argmax(axis=1))
    several = np.bincount(row)[row] > 1
    value = np.zeros(len(row))
    value[several] = _exact(x, centers, row[several], column[several])
    first = np.flatnonzero(value == _best(value, row)[row])
    first = first[np.flatnonzero(np.diff(row[first], prepend=-1))]
    return torch.from_numpy(column[first])


def _exact(x: Tensor, centers: Centers, row: Places, column: Places) -> NDArray[np.float64]:
    step = max(1, CHUNK // x.shape[1])
    products = [
        (x[row[some]].double() * centers.points[column[some]].double()).sum(dim=1).numpy()
        for some in (slice(first, first + step) for first in range(0, len(row), step))
    ]
    return np.concatenate(products) + centers.half.numpy()[column]


def _best(value: NDArray[np.float64], row: Places) -> NDArray[np.float64]:  # [R]
    """The largest value of each row, every row having some, by row."""
    best: NDArray[np.float64] = np.maximum.reduceat(value, np.flatnonzero(np.diff(row, prepend=-1)))
    return best

"""A first pass in 8-bit integers that loses no neighbour: what it drops is proven to be too far.

The product of two matrices of small integers is several times as fast as that of floats, and exact.
So every row is written as a multiple of integers and a rest, x = s p + r and y = t q + z, with
whole numbers -127 .. 127 in p and q. Then

    x.y = s t p.q + r.y + s p.z         |x.y - s t p.q| <= |r| |y| + (|x| + |r|) |z|

by Cauchy-Schwarz, since |s p| <= |x| + |r|. p.q is a whole number below 2^31 and has no error. What
is compared in the end is no exact x.y but v, the sum of D products in floats: |v - x.y| <= g |x|
|y| with g = D u / (1 - D u), in whatever order it is summed (u: half the spacing of floats at 1),
and at most D times the smallest normal number more where products underflow. Together

    v <= s t p.q + e        and     v >= s t p.q - e
    e = |r| |y| + (|x| + |r|) |z| + g |x| |y| + D tiny

so a pair with s t p.q + e <= bar has v <= bar and is dropped. The first bar is the k-th largest v
of pairs with the largest p.q. Whatever is left is compared again, in floats; only those values
enter a list, and only they raise its bar. Lists are therefore those of a search in floats.

The norms above are upper bounds of them: a sum of squares in floats is wrong by at most D u of
itself, and by D tiny where squares underflow; and x - s p, computed in floats, by 2 u (|x| + |r|).
For unit rows of size 512 with about normal numbers |r| is 0.0075 and e 0.015, and of 60,502 of them
one pair in a thousand is compared again.

Rows with alike largest numbers stand in one block and share a scale (`by_scale`): the comparison
with a bar is then one of whole numbers, and e takes the largest |y| and |z| of a block of columns.
Where more than a fifth of a block is left, floats are cheaper, and the block is done in floats.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 127
LEAST, MOST = -(2**31), 2**31 - 1
GAIN = 1.5  # times as fast as floats integers must be to be used
ROWS = 2**14  # of one scale, or made into floats, at a time
STRIP = 512  # rows made into integers at a time: they stay in a cache
MOST_COLUMNS = 2**17  # products of 127 * 127, as many of them, sum up to less than 2^31

Lengths = NDArray[np.float64]


@dataclass(frozen=True)
class Integers:
    """A block of rows, x = scale * whole + rest."""

    whole: Tensor  # [R, D] int8
    scale: float
    norm: Lengths  # [R], at least |x|
    rest: Lengths  # [R], at least |r|

    @classmethod
    def of(cls, *rows: Tensor) -> "Integers":
        """Rows of one or several matrices, with one scale."""
        strips = [strip.numpy() for x in rows for strip in x.split(STRIP)]
        kind = strips[0].dtype.type
        largest = max(float(np.abs(x).max()) for x in strips)
        scale = kind(max(largest / LARGEST, np.finfo(kind).tiny))
        whole = np.empty((sum(map(len, strips)), rows[0].shape[1]), dtype=np.int8)
        norm, rest = np.empty((2, len(whole)))
        start = 0
        for x in strips:
            here = slice(start, start := start + len(x))
            left = x / scale
            whole[here] = np.rint(left, out=left)
            left *= -scale
            left += x
            norm[here], rest[here] = norms(x), norms(left)
        rest += float(np.finfo(kind).eps) * (norm + rest)
        return cls(torch.from_numpy(whole), float(scale), norm, rest)

    def __getitem__(self, rows: slice) -> "Integers":
        return Integers(self.whole[rows], self.scale, self.norm[rows], self.rest[rows])

    @cached_property
    def longest(self) -> float:
        return float(self.norm.max())

    @cached_property
    def worst(self) -> float:
        """The largest rest."""
        return float(self.rest.max())

    @np.errstate(invalid="ignore")  # of infinite lengths nothing is known
    def bound(self, columns: "Integers", dtype: torch.dtype) -> "Bound":
        """Of these rows' products with any of the columns, compared again in that type."""
        size, longest, rest = self.whole.shape[1], columns.longest, columns.worst
        error = self.rest * longest + (self.norm + self.rest) * rest
        error += sum_error(size, dtype) * self.norm * longest
        error = (error + size * torch.finfo(dtype).tiny) * (1 + 1e-9)  # float64 has rounded, too
        return Bound(self.scale * columns.scale, error)


@dataclass(frozen=True)
class Bound:
    """|v - unit * product| <= error, for each row."""

    unit: float  # s t
    error: Lengths  # [R]

    @np.errstate(invalid="ignore")
    def at_most(self, bar: Tensor | Lengths) -> NDArray[np.int32]:  # [R]
        """The products up to which a pair cannot lie above its row's bar."""
        product = np.floor((np.asarray(bar, dtype=np.float64) - self.error) / self.unit) - 1
        product = np.where(product > LEAST, product, LEAST)  # which NaN is not
        return np.minimum(product, MOST).astype(np.int32)


def sum_error(size: int, dtype: torch.dtype) -> float:
    """g: at least what a sum of so many products is wrong by, as a part of the two lengths."""
    summed = size * torch.finfo(dtype).eps / 2
    return summed / (1 - summed)


def norms(x: NDArray[np.floating[Any]]) -> Lengths:  # [R]
    """At least the length of each row."""
    size, info = x.shape[1], np.finfo(x.dtype)
    norms: Lengths = np.sqrt(np.einsum("nd,nd->n", x, x)).astype(np.float64)
    norms *= 1 + size * float(info.eps)
    norms += size * float(info.tiny) ** 0.5
    return norms


def by_scale(x: Tensor) -> Tensor:  # [n]
    """Positions of rows, those with alike largest numbers beside each other."""
    return x.abs().amax(dim=1).argsort(stable=True)


def pair_products(left: Tensor, right: Tensor, row: Tensor, column: Tensor) -> Tensor:  # [P]
    """left[row] . right[column] of pairs sorted by row: a product of matrices at chosen places.

    Many more columns than rows would be fetched again and again: then column by column.
    """
    if 4 * len(left) < len(right) < min(len(row), 2**16):
        order = torch.from_numpy(np.argsort(column.numpy().astype(np.uint16), kind="stable"))
        value = np.empty(len(row), dtype=left.numpy().dtype)
        sorted_pairs = column.index_select(0, order), row.index_select(0, order)
        value[order.numpy()] = pair_products(right, left, *sorted_pairs).numpy()
        return torch.from_numpy(value)
    starts = torch.zeros(len(left) + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(row, minlength=len(left)), dim=0, out=starts[1:])
    zeros, shape = left.new_zeros(len(column)), (len(left), len(right))
    places = torch.sparse_csr_tensor(starts, column, zeros, shape, check_invariants=False)
    return torch.sparse.sampled_addmm(places, left, right.T, beta=0.0).values()


def pays(x: Tensor, measure: bool = True) -> bool:
    """Whether integers are exact here and, if measured, faster than floats for rows like these.

    Of rows of one number torch._int_mm (2.13) gives wrong products.
    """
    if x.device.type != "cpu" or not 2 <= x.shape[1] < MOST_COLUMNS or not _exact():
        return False
    return not measure or _faster(1 << (x.shape[1] - 1).bit_length(), x.dtype)


@cache
def _exact() -> bool:
    """Some processors saturate sums of 16 bits; and torch warns of sparse matrices once."""
    whole = torch.full((64, 256), LARGEST, dtype=torch.int8)
    whole[::2, ::3] *= -1
    one, first = torch.ones(1, 16), torch.zeros(1, dtype=torch.int64)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
            pair_products(one, one, first, first)
        return torch.equal(
            torch._int_mm(whole, whole.T).double(), whole.double() @ whole.double().T
        )
    except RuntimeError:  # not built for this machine
        return False


@cache
def _faster(size: int, dtype: torch.dtype) -> bool:
    """Measured once in a process for each size: a product in integers against one in floats."""
    whole = torch.ones(512, size, dtype=torch.int8)
    floats = whole.to(dtype)
    in_integers = _seconds(lambda: torch._int_mm(whole, whole.T))
    return _seconds(lambda: floats @ floats.T) > GAIN * in_integers


def _seconds(work: Callable[[], object], repeats: int = 5) -> float:
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return min(spent)


def places(clears: np.ndarray) -> tuple[Tensor, Tensor]:
    """Row and column of what is true in a matrix of bytes, by row: words of eight come first."""
    words = clears.reshape(-1).view(np.uint64)
    filled = np.flatnonzero(words != 0)
    inside = np.flatnonzero(words[filled].view(np.bool_))
    place = filled[inside >> 3] * 8 + (inside & 7)
    row, column = np.divmod(place, clears.shape[1])
    return torch.from_numpy(row), torch.from_numpy(column)

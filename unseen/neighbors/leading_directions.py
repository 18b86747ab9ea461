"""Rows along their leading directions: most rows are refused after a part of their dimensions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors.certified import (
    LARGEST,
    LEAST,
    MOST,
    ROWS,
    Integers,
    Lengths,
    norms,
    sum_error,
)
from unseen.neighbors.top_lists import kth_of_groups

WIDTH = 64  # numbers a row is first compared by: its parts along the directions, and the rest
SHORT = 4 * WIDTH  # rows of fewer numbers are compared as a whole
SMALL = 2**24  # numbers: fewer stay in a cache, and are compared as fast as these
SAMPLE, ROUNDS = 4096, 4  # rows the directions are found from, and steps of the iteration
MOST_REST = 0.5  # of the squared lengths: above it hardly any row would be refused
SLACK = 1e-9  # more than float64 rounds of a sum
TINY = 2.0**-63  # below it squares of floats underflow
TOO_MANY = 4  # more than one row in so many left: whole rows are compared at once

Rows = Callable[[Tensor], Tensor]  # positions [P] -> rows [P, D]
Places = NDArray[np.int64]  # [P]


@dataclass(frozen=True)
class LeadingDirections:
    """Of many rows y: their parts along a few directions and the length of the rest, as integers.

    Formula:
        B [W, D] has nearly orthonormal rows, |B B^T - 1| <= d, and P projects onto them. With the
        rest c(y) >= |y - P y| as one more number beside B y, A(y) = [B y, c(y)],

            x.y = P x . P y + (x - P x).(y - P y) <= A(x).A(y) + h |x| |y|

        by Cauchy-Schwarz. h is what d and floats take: B y in floats is wrong by at most a |y| with
        a = sqrt(W) (1 + d) (g + 2 u), so h = d (1 + d) / (1 - d) + 2 a (1 + d) + a^2, and
        c(y)^2 = |y|^2 - (|B y| - a |y|)^2 / (1 + d). Integers bound A(x).A(y), and x.y bounds v,
        the sum of products in floats, up to g |x| |y| + D tiny (unseen/neighbors/certified.py).

    The directions are the principal ones of a sample, without its mean; the bound holds for any.
    """

    basis: Tensor  # [W, D]
    basis_error: float  # d
    short: Integers  # A(y), [N, W + 1]
    whole: Integers  # the rows themselves, [N, D]

    @classmethod
    def of(cls, chunks: Sequence[Tensor], whole: Integers) -> "LeadingDirections | None":
        """Of the rows of all chunks, which are held as integers too; None: it would not pay."""
        if chunks[0].shape[1] < SHORT or whole.whole.numel() < SMALL:
            return None
        step = -(-len(whole.whole) // SAMPLE)
        basis = _principal_directions(torch.cat([chunk[::step] for chunk in chunks]))
        gram = basis.double() @ basis.double().T
        basis_error = float((gram - torch.eye(len(basis), dtype=gram.dtype)).norm()) + 1e-12
        pieces = [piece for chunk in chunks for piece in chunk.split(ROWS)]
        norm = np.split(whole.norm, np.cumsum([len(piece) for piece in pieces])[:-1])
        short = [_shortened(*each, basis, basis_error) for each in zip(pieces, norm, strict=True)]
        rest = sum(float(piece[:, -1].double().square().sum()) for piece in short)
        if not rest < MOST_REST * float(np.square(whole.norm).sum()):  # NaN of infinite lengths
            return None
        return cls(basis, basis_error, Integers.of(*short), whole)

    def left(
        self, query: Tensor, k: int, rows: Rows, forbidden: Tensor | None = None
    ) -> Places | None:
        """Positions of what may be among the k nearest of a query [1, D], by these numbers and then
        by whole rows of integers; None: comparing all whole rows is cheaper."""
        row = query.numpy()[0]
        mine = _RoundedRow.of(row.astype(np.float64))
        short = self._shortened(row, mine.norm)
        products = torch._int_mm(short.whole, self.short.whole.T)
        if forbidden is not None:
            products.masked_fill_(forbidden, LEAST)
        seen = products.numpy()[0]
        near = (seen >= max(LEAST + 1, int(kth_of_groups(products, k)))).nonzero()[0]
        if not k <= len(near) <= len(seen) // TOO_MANY:
            return None
        values = (rows(torch.from_numpy(near)) * query).sum(dim=1).numpy()
        _, projecting, summing, tiny = self._errors
        most = mine.norm * self.whole.longest
        bar = float(np.partition(values, -k)[-k]) - 3 * (summing * most + tiny)  # in any order
        left = (seen > short.at_most(bar - projecting * most, self.short)).nonzero()[0]
        if TOO_MANY * len(left) > len(seen):
            return None
        again = self.whole.whole.index_select(0, torch.from_numpy(left))
        clears = torch._int_mm(mine.whole, again.T).numpy()[0] > mine.at_most(bar, self.whole)
        result: Places = left[clears]
        return result

    def _shortened(self, row: NDArray[np.floating[Any]], norm: float) -> "_RoundedRow":
        """A(x) of one row, of at most that length."""
        along = np.append(self.basis.numpy() @ row, 0).astype(np.float64)
        least = math.sqrt(along @ along) * (1 - SLACK) - self._errors[0] * norm  # |B x| is at least
        along[-1] = math.sqrt(norm**2 - max(0.0, least) ** 2 / (1 + self.basis_error)) * (1 + SLACK)
        return _RoundedRow.of(along)

    @cached_property
    def _errors(self) -> tuple[float, float, float, float]:
        """a, h, g, and D tiny."""
        d, a = self.basis_error, _rounding(self.basis, self.basis_error)
        size, dtype = self.basis.shape[1], self.basis.dtype
        h = (d * (1 + d) / (1 - d) + 2 * a * (1 + d) + a**2) * (1 + SLACK)
        return a, h, sum_error(size, dtype), size * torch.finfo(dtype).tiny


@dataclass(frozen=True)
class _RoundedRow:
    """One row as integers: the same as `Integers` of it, for less than a third of the time."""

    whole: Tensor  # [1, D] int8
    scale: float
    norm: float  # at least |x|
    rest: float  # at least |r|

    @classmethod
    def of(cls, row: Lengths) -> "_RoundedRow":  # [D] float64
        scale = float(np.abs(row).max()) / LARGEST or 1.0
        whole = np.rint(row / scale)
        rest = row - scale * whole
        norm = math.sqrt(row @ row) * (1 + SLACK) + len(row) * TINY
        # of its own size: for a matrix of one row numpy's strides are not those that torch asks for
        integers = torch.from_numpy(whole.astype(np.int8)).view(1, -1)
        return cls(integers, scale, norm, math.sqrt(rest @ rest) * (1 + SLACK) + SLACK * norm)

    def at_most(self, bar: float, columns: Integers) -> int:
        """The products up to which a row cannot lie above the bar."""
        error = self.rest * columns.longest + (self.norm + self.rest) * columns.worst
        product = (bar - error * (1 + SLACK)) / (self.scale * columns.scale)
        return math.floor(min(product, MOST)) - 1 if product > LEAST else LEAST


def _principal_directions(x: Tensor) -> Tensor:  # [W, D]
    """Nearly those of the largest mean squares: by orthogonal iteration from a fixed start."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(x.shape[1], WIDTH - 1, generator=generator).to(x.dtype)
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(x.T @ (x @ basis)).Q
    return basis.T.contiguous()


@np.errstate(invalid="ignore")  # of infinite lengths
def _shortened(x: Tensor, norm: Lengths, basis: Tensor, basis_error: float) -> Tensor:
    """A(x) [R, W + 1] of rows of at most these lengths."""
    along, count, info = (x @ basis.T).numpy(), len(basis), np.finfo(x.numpy().dtype)
    least = norms(along) * (1 - 3 * count * float(info.eps)) - 3 * count * float(info.tiny) ** 0.5
    least -= _rounding(basis, basis_error) * norm  # |B x| is at least that
    rest = np.sqrt(norm**2 - least.clip(min=0) ** 2 / (1 + basis_error)) * (1 + float(info.eps))
    return torch.from_numpy(np.concatenate([along, rest[:, None].astype(along.dtype)], axis=1))


def _rounding(basis: Tensor, basis_error: float) -> float:
    """a: of parts along the directions, computed in floats; 2 u of it where products underflow."""
    size, info = basis.shape[1], torch.finfo(basis.dtype)
    return len(basis) ** 0.5 * (1 + basis_error) * (sum_error(size, basis.dtype) + info.eps)

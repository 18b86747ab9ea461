"""Rows along their leading directions: most rows are refused after a part of their dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors.certified import LEAST, ROWS, Integers, Lengths, norms, sum_error
from unseen.neighbors.top_lists import kth_of_groups

WIDTH = 64  # numbers a row is first compared by: its parts along the directions, and the rest
SHORT = 4 * WIDTH  # rows of fewer numbers are compared as a whole
SMALL = 2**24  # numbers: fewer stay in a cache, and are compared as fast as these
SAMPLE, ROUNDS = 4096, 4  # rows the directions are found from, and steps of the iteration
MOST_REST = 0.5  # of the squared lengths: above it hardly any row would be refused
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
        starts = np.cumsum([len(piece) for piece in pieces])[:-1]
        norm = np.split(whole.norm, starts)
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
        mine = Integers.of(query)
        if not np.isfinite(mine.longest):
            return None
        short = Integers.of(_shortened(query, mine.norm, self.basis, self.basis_error))
        products = torch._int_mm(short.whole, self.short.whole.T)
        if forbidden is not None:
            products.masked_fill_(forbidden, LEAST)
        seen = products.numpy()[0]
        near = np.flatnonzero(seen >= max(LEAST + 1, int(kth_of_groups(products, k))))
        if not k <= len(near) <= len(seen) // TOO_MANY:
            return None
        values = (rows(torch.from_numpy(near)) * query).sum(dim=1).numpy()
        most = mine.norm * self.whole.longest
        summed = sum_error(query.shape[1], query.dtype) * most
        summed += query.shape[1] * torch.finfo(query.dtype).tiny
        bar = np.partition(values, -k)[-k] - 2 * summed  # of sums in whatever order
        bound = short.bound(self.short, query.dtype)
        left = np.flatnonzero(seen > bound.at_most(bar - summed - self._projection_error * most))
        if TOO_MANY * len(left) > len(seen):
            return None
        again = self.whole.whole.index_select(0, torch.from_numpy(left))
        products = torch._int_mm(mine.whole, again.T)
        bound = mine.bound(self.whole, query.dtype)
        return left[products.numpy()[0] > bound.at_most(bar)]

    @cached_property
    def _projection_error(self) -> float:
        """h, a little rounded up."""
        d, a = self.basis_error, _rounding(self.basis, self.basis_error)
        return (d * (1 + d) / (1 - d) + 2 * a * (1 + d) + a**2) * (1 + 1e-9)


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

"""Rows kept as 8-bit integers alone, each with its own scale: y = t q + z, and z is thrown away.

What is found is exact for the rows that are left, t q. For those that were given a similarity is
wrong by at most |z| |x|, by Cauchy-Schwarz, and |z| is kept beside the scale.

A product of integers with everything comes first, x = s p + r for the query. With v the sum in
floats of the products of x and the row t q as floats have it, and L the length of the longest row,

    |v - s t p.q| <= e = L (|r| + (g + 4 u) (|x| + |r|)) + D tiny

(g, u, tiny: neighbors/certified.py; 4 u for t q, p.q and t p.q as floats have them). At least k
rows reach the k-th largest t p.q, so whatever lies 2 e below it is none of the k nearest; the few
others are compared in floats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from unseen.neighbors import certified
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.certified import LARGEST, ROWS, Integers, norms, sum_error
from unseen.neighbors.few_queries import MOST, TOO_MANY
from unseen.neighbors.top_lists import Best, can_begin, kth_of_groups


@dataclass(frozen=True)
class Codes:
    """Rows as integers. rest: at least the length of what rounding took from each."""

    whole: Tensor  # [N, D] int8
    scale: Tensor  # [N] float32
    rest: Tensor  # [N] float32

    @classmethod
    def of(cls, rows: Tensor) -> "Codes":  # [N, D] float32
        """Scales keep the lengths: unit rows stay unit rows."""
        info = torch.finfo(rows.dtype)
        step = (rows.abs().amax(dim=1, keepdim=True) / LARGEST).clamp(min=info.tiny)
        whole = (rows / step).round_().clamp_(-LARGEST, LARGEST)
        scale = rows.norm(dim=1) / whole.norm(dim=1).clamp(min=1)
        norm, rest = norms(rows.numpy()), norms((rows - whole * scale[:, None]).numpy())
        rest += info.eps * (norm + rest)
        rounded_up = torch.from_numpy(rest).float() * (1 + info.eps)
        return cls(whole.to(torch.int8), scale, rounded_up)

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, which: Tensor | slice) -> Tensor:
        """Those that are left, in floats."""
        return self.whole[which] * self.scale[which, None]

    @cached_property
    def longest(self) -> float:
        """At least the length of every row."""
        some = [slice(first, first + ROWS) for first in range(0, len(self), ROWS)]
        return max((float(norms(self.rows(rows).numpy()).max()) for rows in some), default=0.0)


def nearest_in_codes(
    queries: Tensor,
    k: int,
    parts: Sequence[Codes],
    forbidden: Tensor | None = None,
    counter: WorkCounter | None = None,
) -> tuple[Tensor, Tensor]:  # two [Q, k]
    """Products and positions counted through all parts, largest first; -1 where there is nothing
    left. Which of several equals ends a list is left open. forbidden: bool [N], rows that do not
    answer. counter: of the pairs compared."""
    widest = max((len(codes) for codes in parts), default=1)
    result = []
    for some in queries.split(max(1, MOST // widest)):
        best, start = Best(len(some), k, some), 0
        for codes in parts:
            here = None if forbidden is None else forbidden[start : start + len(codes)]
            again = _offer_few(some, codes, start, best, here)
            if again is None:
                _offer_floats(some, codes, start, best, here)
            if counter is not None:
                counter.add(len(some) * len(codes), again or 0)
            start += len(codes)
        result.append(best.sorted())
    values, rows = zip(*result, strict=True)
    return torch.cat(values), torch.cat(rows)


def _offer_few(
    queries: Tensor, codes: Codes, start: int, best: Best, forbidden: Tensor | None
) -> int | None:
    """What may enter the lists: how much of it; None: so much that floats are cheaper."""
    if not can_begin(len(codes), best.keep) or not certified.pays(queries, measure=False):
        return None
    mine, info = Integers.of(queries), torch.finfo(queries.dtype)
    size = queries.shape[1]
    summed = sum_error(size, queries.dtype) + 2 * info.eps
    most = codes.longest * (mine.rest + summed * (mine.norm + mine.rest)) + size * info.tiny
    error = torch.from_numpy(most * (1 + 1e-9) / mine.scale)  # [Q], of the products below
    near = torch._int_mm(mine.whole, codes.whole.T) * codes.scale  # [Q, N]
    if forbidden is not None:
        near.masked_fill_(forbidden, -torch.inf)
    low = kth_of_groups(near, best.keep).double() - 2 * error
    low = torch.maximum(low, best.bar.double() / mine.scale - error)
    low = torch.nextafter(low.float(), torch.tensor(-torch.inf))
    low.clamp_(min=torch.finfo(low.dtype).min)  # what is forbidden stays below
    hits = np.flatnonzero(near.numpy() >= low.numpy()[:, None])
    if TOO_MANY * len(hits) > near.numel():
        return None
    row, item = map(torch.from_numpy, np.divmod(hits, len(codes)))
    best.offer_pairs(row, item + start, (queries[row] * codes.rows(item)).sum(dim=1))
    return len(hits)


def _offer_floats(
    queries: Tensor, codes: Codes, start: int, best: Best, forbidden: Tensor | None
) -> None:
    for first in range(0, len(codes), ROWS):
        rows = slice(first, first + ROWS)
        block = queries @ codes.rows(rows).T
        if forbidden is not None:
            block.masked_fill_(forbidden[rows], -torch.inf)
        best.offer(block, torch.arange(len(block[0])) + start + first)

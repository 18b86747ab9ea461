"""Sums of hinges over pairs and over all triplets of a batch, with their gradient written out."""

from __future__ import annotations  # so that torch.compile sees through inner functions

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import among, positive_pairs


def hinge_sum(
    values: Tensor, bound: Tensor | float, counts: Tensor, below: bool = False
) -> tuple[Tensor, Tensor]:  # two scalars
    """The sum of [values - bound]+, each counting so often, and how many of the terms are above 0;
    with `below` of [bound - values]+. A tensor of bounds broadcasts, and gets its gradient."""
    sign = -1.0 if below else 1.0
    if not isinstance(bound, Tensor):
        bound = values.new_tensor(bound)

    def formula(values: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        terms = (sign * (values - bound)).clamp(min=0)
        return (terms * counts).sum(), ((terms > 0) * counts).sum()

    def written(values: Tensor, bound: Tensor) -> tuple[tuple[Tensor, Tensor], Back]:
        terms = (bound - values if below else values - bound).clamp_(min=0)
        total = torch.dot(terms.flatten(), counts.flatten())
        slope = terms.sign_().mul_(counts)  # how often each active term counts

        def back(grad: Tensor) -> tuple[Tensor, Tensor | None]:
            on_values = slope * (sign * grad)
            return on_values, -on_values.sum_to_size(bound.shape) if bound.requires_grad else None

        return (total, slope.sum()), back

    total, active = differentiable(formula, written, values, bound)
    return total, active


def hinge_triplets(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float
) -> tuple[Tensor, Tensor]:  # two scalars
    """The sum of [dist[a,p] - dist[a,n] + margin]+ over all triplets of two masks, and how many of
    the terms are above 0."""
    total, active = _over_triplets(dist, pos, neg, margin)
    return total, active


def softplus_triplets(dist: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # scalar
    """The sum of log(1 + exp(dist[a,p] - dist[a,n])) over all triplets of two masks."""
    total, _ = _over_triplets(dist, pos, neg, None)
    return total


def triplet_mean(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float | None, of_active: bool
) -> Tensor:  # scalar
    """The mean over all triplets, or over those above 0; without a margin of the soft hinge."""
    if margin is None:
        return softplus_triplets(dist, pos, neg) / _count_triplets(pos, neg).clamp(min=1)
    total, active = hinge_triplets(dist, pos, neg, margin)
    return total / (active if of_active else _count_triplets(pos, neg)).clamp(min=1)


def triplet_mean_slope(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float | None, of_active: bool
) -> tuple[Tensor, Tensor]:  # scalar, [N, M]
    """The same from masks as numbers, and its gradient by the distances."""
    total, active, gradient = triplet_sum(dist, pos, neg, margin)
    num = (active if of_active else _count_triplets(pos, neg)).clamp(min=1)
    return total / num, gradient.div_(num)


def _count_triplets(pos: Tensor, neg: Tensor) -> Tensor:  # scalar
    return (pos.sum(dim=1) * neg.sum(dim=1)).sum()


def _over_triplets(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float | None
) -> tuple[Tensor, Tensor]:
    def formula(dist: Tensor) -> tuple[Tensor, Tensor]:  # in memory of [positives, M]
        anchor, positive = pos.nonzero(as_tuple=True)
        gap = dist[anchor, positive][:, None] - dist[anchor] + (margin or 0.0)
        terms = F.softplus(gap) if margin is None else gap.clamp(min=0)
        terms = terms.masked_fill(~neg[anchor], 0.0)
        return terms.sum(), (terms > 0).sum()

    def written(dist: Tensor) -> tuple[tuple[Tensor, Tensor], Back]:
        counts = pos.to(dist.dtype), neg.to(dist.dtype)
        total, active, slope = triplet_sum(dist, *counts, margin)
        return (total, active), lambda grad: (slope * grad,)

    total, active = differentiable(formula, written, dist)
    return total, active


BLOCK = 1 << 16  # entries at a time: the block stays in a core's cache


def triplet_sum(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:  # two scalars, [N, M]
    """The sum over triplets of masks given as numbers, how many of its terms are above 0, and its
    gradient. Runs over blocks of positive pairs against their rows of negatives. The gradient is
    known while the block is at hand, so an [N, M] matrix of it is kept instead of the [N, M, M]
    terms: every triplet costs time, none costs memory. Without a margin the hinge is a soft one."""
    pair, anchor = positive_pairs(pos)  # [P]
    near = dist.flatten().index_select(0, pair) + (margin or 0.0)  # [P]
    far = dist - among(neg)  # [N, M]; what is no negative is out of reach: no term, no gradient
    gradient = torch.zeros_like(dist, memory_format=torch.contiguous_format)
    total, slope_of_near = dist.new_zeros(()), torch.empty_like(near)
    rows = max(1, BLOCK // max(1, dist.shape[1]))
    for start in range(0, len(anchor), rows):
        block = slice(start, start + rows)
        gap = far.index_select(0, anchor[block]).neg_().add_(near[block, None])  # [rows, M]
        if margin is None:
            total += F.softplus(gap).sum()
            slope = gap.sigmoid_()
        else:
            total += gap.relu_().sum()
            slope = gap.sign_()
        torch.sum(slope, dim=1, out=slope_of_near[block])
        gradient.index_add_(0, anchor[block], slope, alpha=-1)
    gradient.view(-1).index_add_(0, pair, slope_of_near)
    return total, slope_of_near.sum(), gradient  # a hinge's slope is 1 where it is above 0

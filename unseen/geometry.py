"""Similarities, distances and masked sums of exponentials: the only distance code of the toolkit.

Rows of `x` [N, D] are compared with rows of `y` [M, D] (with each other when `y` is None); with
`paired=True` only row i with row i. Every function is differentiable once and keeps finite
gradients on coincident rows, antipodal rows and empty masks.

Functions of whole matrices are written with their gradient where that saves matrices: at batch
sizes of some hundred, making a matrix costs more than computing it.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Measure = Callable[..., Tensor]  # (x, y=None, paired=False)


def full_precision(x: Tensor) -> Tensor:
    """Half precision raised to float32; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit(x: Tensor) -> Tensor:
    """Rows on the unit sphere. A zero row stays zero (in float32 all below 1e-19 are taken as such,
    their squares being none) and its gradient passes as it is."""
    if not x.requires_grad:
        return x * _inverse_lengths(x)
    rows: Tensor = _Unit.apply(x)
    return rows


def _inverse_lengths(x: Tensor) -> Tensor:  # [..., 1]; 1 for a zero row
    squares = x.square().sum(dim=-1, keepdim=True)
    return torch.threshold_(squares, torch.finfo(x.dtype).tiny, 1.0).rsqrt_()


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        inverse = _inverse_lengths(x)
        rows = x * inverse
        ctx.save_for_backward(rows, inverse)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rows, inverse = ctx.saved_tensors
        along = (grad * rows).sum(dim=-1, keepdim=True)  # changes the length only
        return torch.addcmul(grad, rows, along, value=-1).mul_(inverse)


def dot(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Inner products of raw rows."""
    if paired:
        return (x * (x if y is None else y)).sum(dim=1)
    if y is not None:
        return x @ y.T
    products: Tensor = _Gram.apply(x)
    return products


def cosine(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Cosine similarities."""
    return dot(unit(x), None if y is None else unit(y), paired)


def cosine_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """1 - cos: half the squared distance of the rows' directions."""
    if paired:  # so that an item is at no distance from itself
        return _unit_squares(x, y, paired) / 2
    dist = 1 - cosine(x, y)
    return _zero_diagonal(dist) if y is None else dist


def squared_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Squared Euclidean distances of raw rows; rounding never makes them negative."""
    return _not_negative(_squares(x, y, paired))


def distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Euclidean distances of raw rows."""
    return _roots(_squares(x, y, paired))


def unit_squared_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Squared Euclidean distances of the rows' directions: 2 - 2 cos."""
    return _not_negative(_unit_squares(x, y, paired))


def unit_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Euclidean distances of the rows' directions."""
    return _roots(_unit_squares(x, y, paired))


UNIT_DISTANCES: dict[str, Measure] = {  # what an argument `distance` may be
    "euclidean": unit_distance,
    "squared": unit_squared_distance,
    "cosine": cosine_distance,
}


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root; at 0, and below it by rounding, it is 0 and so is its gradient."""
    return _roots(squares)


def _squares(x: Tensor, y: Tensor | None, paired: bool) -> Tensor:
    if paired:
        return (x - (x if y is None else y)).square().sum(dim=1)
    if y is None:
        squares: Tensor = _OwnSquares.apply(x, False)
        return squares
    x_norm, y_norm = x.square().sum(dim=1), y.square().sum(dim=1)
    return x_norm[:, None] + torch.addmm(y_norm[None, :], x, y.T, alpha=-2)


def _unit_squares(x: Tensor, y: Tensor | None, paired: bool) -> Tensor:
    x, y = unit(x), None if y is None else unit(y)
    if paired:
        return (x - (x if y is None else y)).square().sum(dim=1)
    if y is None:
        squares: Tensor = _OwnSquares.apply(x, True)
        return squares
    return torch.addmm(x.new_full((1, 1), 2.0), x, y.T, alpha=-2)


def _both_ways(grad: Tensor) -> Tensor:
    """grad + grad.T, copied first: adding while reading columns is several times slower."""
    return grad.T.contiguous().add_(grad)


class _Gram(torch.autograd.Function):
    """Products of rows with each other. Both sides are the same rows: their two gradients are one
    matrix product instead of two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return _both_ways(grad) @ x


class _OwnSquares(torch.autograd.Function):
    """Squared distances of rows to each other; of unit rows the lengths are known. A row is at 0
    from itself (in float32 rounding would put it at a distance of about 3e-4)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_unit: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.is_unit = is_unit
        if is_unit:
            squares = torch.addmm(x.new_full((1, 1), 2.0), x, x.T, alpha=-2)
        else:
            norm = x.square().sum(dim=1)
            squares = torch.addmm(norm[None, :], x, x.T, alpha=-2).add_(norm[:, None])
        return squares.fill_diagonal_(0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        both = _both_ways(grad)
        if ctx.is_unit:
            return (both @ x).mul_(-2), None
        return torch.addmm(both.sum(dim=1, keepdim=True) * x, both, x, beta=2, alpha=-2), None


def _not_negative(squares: Tensor) -> Tensor:
    """In place and unseen by autograd: below 0 there is rounding only, its gradient is 0 anyway."""
    squares.detach().clamp_(min=0)
    return squares


def _zero_diagonal(dist: Tensor) -> Tensor:
    """Likewise between a row and itself."""
    dist.detach().fill_diagonal_(0.0)
    return dist


def _roots(squares: Tensor) -> Tensor:
    roots: Tensor = _Roots.apply(squares)
    return roots


class _Roots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, squares: Tensor) -> Tensor:
        smallest = 1e-12 if squares.dtype == torch.float64 else 1e-8
        roots = squares.clamp(min=smallest).sqrt_()
        F.threshold(roots, 1.0001 * math.sqrt(smallest), 0.0, inplace=True)
        ctx.save_for_backward(roots)
        return roots

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (roots,) = ctx.saved_tensors
        slope = F.threshold(roots, 0.0, math.inf).mul_(2)  # no gradient where the root is 0
        return torch.div(grad, slope, out=slope)


def log_sum_exp(values: Tensor, where: Tensor, dim: int = 1, scale: float = 1.0) -> Tensor:
    """log of the sum of exp(scale * values) over a mask; -inf, without gradient, where empty."""
    if values.numel() == 0:  # an empty batch has no largest entry
        return torch.logsumexp(scale * values, dim=dim)
    result: Tensor = _LogSumExp.apply(values, where, dim, scale)
    return result


def log1p_sum_exp(values: Tensor, where: Tensor, dim: int = 1, scale: float = 1.0) -> Tensor:
    """log(1 + sum of exp(scale * values) over a mask); 0, with zero gradient, where it is empty."""
    return F.softplus(log_sum_exp(values, where, dim, scale))


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, where: Tensor, dim: int, scale: float) -> Tensor:
        weights = torch.where(where, values, -math.copysign(math.inf, scale)).mul_(scale)
        lowest = torch.finfo(weights.dtype).min
        largest = weights.amax(dim=dim, keepdim=True).clamp_(min=lowest)  # finite where empty
        total = weights.sub_(largest).exp_().sum(dim=dim, keepdim=True)
        weights.mul_(scale / total.clamp(min=1))  # the largest entry alone makes 1
        ctx.save_for_backward(weights)
        ctx.dim = dim
        return largest.add_(total.log_()).squeeze(dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (weights,) = ctx.saved_tensors
        return weights * grad.unsqueeze(ctx.dim), None, None, None


def masked_mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over a mask; 0, attached to the graph, where the mask is empty."""
    return values.masked_fill(~where, 0.0).sum() / where.sum().clamp(min=1)


def weighted_mean(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of values that count so often each; 0, attached to the graph, where nothing counts."""
    return torch.dot(values.flatten(), counts.flatten()) / counts.sum().clamp(min=1)


def hinge_sum(
    values: Tensor, bound: Tensor | float, counts: Tensor, below: bool = False
) -> tuple[Tensor, Tensor]:  # two scalars
    """The sum of [values - bound]+, each counting so often, and how many of the terms are above 0;
    with `below` of [bound - values]+. A tensor of bounds broadcasts, and gets its gradient."""
    if not isinstance(bound, Tensor):
        bound = values.new_tensor(bound)
    total, active = _HingeSum.apply(values, bound, counts, -1.0 if below else 1.0)
    return total, active


class _HingeSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, bound: Tensor, counts: Tensor, sign: float
    ) -> tuple[Tensor, Tensor]:
        terms = (values - bound if sign > 0 else bound - values).clamp_(min=0)
        total = torch.dot(terms.flatten(), counts.flatten())
        slope = terms.sign_().mul_(counts)  # how often each active term counts
        active = slope.sum()
        ctx.save_for_backward(slope)
        ctx.sign, ctx.bound_shape = sign, bound.shape
        ctx.mark_non_differentiable(active)
        return total, active

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (slope,) = ctx.saved_tensors
        on_values = slope * (ctx.sign * grad)
        on_bound = -on_values.sum_to_size(ctx.bound_shape) if ctx.needs_input_grad[1] else None
        return on_values, on_bound, None, None


def hinge_triplets(
    dist: Tensor, pos: Tensor, neg: Tensor, margin: float
) -> tuple[Tensor, Tensor]:  # two scalars
    """The sum of [dist[a,p] - dist[a,n] + margin]+ over all triplets of two masks, and how many of
    the terms are above 0."""
    total, active = _TripletSum.apply(dist, pos, neg, margin)
    return total, active


def softplus_triplets(dist: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # scalar
    """The sum of log(1 + exp(dist[a,p] - dist[a,n])) over all triplets of two masks."""
    total, _ = _TripletSum.apply(dist, pos, neg, None)
    return total


class _TripletSum(torch.autograd.Function):
    """Runs over blocks of positive pairs against their rows of negatives. The gradient is known
    while the block is at hand, so an [N, M] matrix of it is kept instead of the [N, M, M] terms:
    every triplet costs time, none costs memory. Without a margin the hinge is a soft one."""

    BLOCK = 1 << 16  # entries at a time: the block stays in a core's cache

    @staticmethod
    def forward(
        ctx: Any, dist: Tensor, pos: Tensor, neg: Tensor, margin: float | None
    ) -> tuple[Tensor, Tensor]:
        anchor, positive = pos.nonzero(as_tuple=True)  # [P]
        near = dist[anchor, positive] + (margin or 0.0)  # [P]
        far = dist.masked_fill(~neg, math.inf)  # [N, M]; infinitely far: no term, no gradient
        gradient = torch.zeros_like(dist)
        total, slope_of_near = dist.new_zeros(()), torch.empty_like(near)
        rows = max(1, _TripletSum.BLOCK // max(1, dist.shape[1]))
        for start in range(0, len(anchor), rows):
            block = slice(start, start + rows)
            gap = far.index_select(0, anchor[block]).neg_().add_(near[block, None])  # [rows, M]
            if margin is None:
                total += F.softplus(gap).sum()
                slope = gap.sigmoid_()
            else:
                total += gap.clamp_(min=0).sum()
                slope = gap.sign_()
            torch.sum(slope, dim=1, out=slope_of_near[block])
            gradient.index_add_(0, anchor[block], slope, alpha=-1)
        gradient[anchor, positive] += slope_of_near
        active = slope_of_near.sum()  # a hinge's slope is 1 where it is above 0
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(active)
        return total, active

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None, None

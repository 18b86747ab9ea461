"""Similarities, distances and masked sums of exponentials: the only distance code of the toolkit.

Rows of `x` [N, D] are compared with rows of `y` [M, D] (with each other when `y` is None); with
`paired=True` only row i with row i. Every function is differentiable as often as wanted, goes
through torch.func, and keeps finite gradients on coincident rows, antipodal rows and empty masks.

What runs in every step is said twice (core/derivatives.py): in plain operations, and with its
gradient written out. A name with an underscore that gives `back` too is of the second kind.
"""

from __future__ import annotations  # so that torch.compile sees through inner functions

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.derivatives import Back, Written, chain, differentiable, is_transformed

Measure = Callable[..., Tensor]  # (x, y=None, paired=False)


def full_precision(x: Tensor) -> Tensor:
    """Half precision raised to float32; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit(x: Tensor) -> Tensor:
    """Rows on the unit sphere. A zero row stays zero (in float32 all below 1e-19 are taken as such,
    their squares being none) and its gradient passes as it is."""
    rows: Tensor = differentiable(lambda x: x * _inverse_lengths(x), to_unit, x)
    return rows


def _inverse_lengths(x: Tensor) -> Tensor:  # [..., 1]; 1 for a zero row
    squares = (x * x).sum(dim=-1, keepdim=True)  # square() takes four operations
    return F.threshold(squares, torch.finfo(x.dtype).tiny, 1.0).rsqrt()


def to_unit(x: Tensor) -> tuple[Tensor, Back]:
    inverse = _inverse_lengths(x)
    rows = x * inverse

    def back(grad: Tensor) -> tuple[Tensor]:
        along = (grad * rows).sum(dim=-1, keepdim=True)  # changes the length only
        return (torch.addcmul(grad, rows, along, value=-1).mul_(inverse),)

    return rows, back


def dot(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Inner products of raw rows."""
    if paired:
        return (x * (x if y is None else y)).sum(dim=1)
    if y is not None:
        return x @ y.T
    products: Tensor = differentiable(lambda x: x @ x.T, _gram, x)
    return products


def cosine(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Cosine similarities."""
    if y is None and not paired:
        sim: Tensor = differentiable(lambda x: dot(unit(x)), _cosines, x)
        return sim
    return dot(unit(x), None if y is None else unit(y), paired)


def scaled_cosine(x: Tensor, y: Tensor, scale: float) -> Tensor:  # [N, M]
    """scale * cosine: the logits of embeddings and class vectors."""

    def written(x: Tensor, y: Tensor) -> tuple[Tensor, Back]:
        (rows, back_to_x), (columns, back_to_y) = to_unit(x), to_unit(y)
        products = _product(rows, columns.T, scale)

        def back(grad: Tensor) -> tuple[Tensor | None, ...]:
            on_x = back_to_x(_product(grad, columns, scale))[0] if x.requires_grad else None
            on_y = back_to_y(_product(grad.T, rows, scale))[0] if y.requires_grad else None
            return on_x, on_y

        return products, back

    logits: Tensor = differentiable(lambda x, y: scale * unit(x) @ unit(y).T, written, x, y)
    return logits


def cosine_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """1 - cos: half the squared distance of the rows' directions."""
    if paired:  # so that an item is at no distance from itself
        return _unit_squares(x, y, paired) / 2
    return 1 - cosine(x, y) if y is not None else _zero_diagonal(1 - cosine(x))


def squared_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Squared Euclidean distances of raw rows; rounding never makes them negative."""
    return _not_negative(_squares(x, y, paired))


def distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Euclidean distances of raw rows."""
    if y is None and not paired:
        dist: Tensor = differentiable(lambda x: safe_sqrt(_squares(x)), _distances, x)
        return dist
    return safe_sqrt(_squares(x, y, paired))


def unit_squared_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Squared Euclidean distances of the rows' directions: 2 - 2 cos."""
    return _not_negative(_unit_squares(x, y, paired))


def unit_distance(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    """Euclidean distances of the rows' directions."""
    if y is None and not paired:
        dist: Tensor = differentiable(lambda x: safe_sqrt(_unit_squares(x)), _unit_distances, x)
        return dist
    return safe_sqrt(_unit_squares(x, y, paired))


UNIT_DISTANCES: dict[str, Measure] = {  # what an argument `distance` may be
    "euclidean": unit_distance,
    "squared": unit_squared_distance,
    "cosine": cosine_distance,
}


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root; at 0, and below it by rounding, it is 0 and so is its gradient."""

    def formula(squares: Tensor) -> Tensor:
        roots = squares.clamp(min=_smallest(squares)).sqrt()
        return F.threshold(roots, 1.0001 * math.sqrt(_smallest(squares)), 0.0)

    roots: Tensor = differentiable(formula, _roots, squares)
    return roots


def _squares(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    if paired:
        return (x - (x if y is None else y)).square().sum(dim=1)
    if y is None:

        def formula(x: Tensor) -> Tensor:
            norm = x.square().sum(dim=1)
            return _zero_diagonal(norm[:, None] + norm - 2 * x @ x.T)

        squares: Tensor = differentiable(formula, _own_squares, x)
        return squares
    x_norm, y_norm = x.square().sum(dim=1), y.square().sum(dim=1)
    return x_norm[:, None] + torch.addmm(y_norm[None, :], x, y.T, alpha=-2)


def _unit_squares(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
    if paired:
        return _squares(unit(x), None if y is None else unit(y), paired)
    if y is None:

        def formula(x: Tensor) -> Tensor:
            return _zero_diagonal(2 - 2 * dot(unit(x)))

        squares: Tensor = differentiable(formula, chain(to_unit, _own_unit_squares), x)
        return squares
    return torch.addmm(x.new_full((1, 1), 2.0), unit(x), unit(y).T, alpha=-2)


def _not_negative(squares: Tensor) -> Tensor:
    """In place and unseen by autograd: below 0 there is rounding only, its gradient is 0 anyway."""
    if is_transformed():
        return squares.clamp(min=0)
    squares.detach().clamp_(min=0)
    return squares


def _zero_diagonal(dist: Tensor) -> Tensor:
    """Between a row and itself there is rounding only."""
    return dist.masked_fill(torch.eye(len(dist), dtype=torch.bool, device=dist.device), 0.0)


def _smallest(squares: Tensor) -> float:
    return 1e-12 if squares.dtype == torch.float64 else 1e-8


def _both_ways(grad: Tensor) -> Tensor:
    """grad + grad.T, copied first: adding while reading columns is several times slower."""
    return grad.T.contiguous().add_(grad)


def _product(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """factor * x @ y in one operation."""
    return torch.addmm(x.new_empty(()), x, y, beta=0, alpha=factor)


def _gram(x: Tensor) -> tuple[Tensor, Back]:
    """Products of rows with each other. Both sides are the same rows: their two gradients are one
    matrix product instead of two."""
    return x @ x.T, lambda grad: (_both_ways(grad) @ x,)


def _own_squares(x: Tensor) -> tuple[Tensor, Back]:
    """Squared distances of rows to each other. A row is at 0 from itself (in float32 rounding would
    put it at a distance of about 3e-4)."""
    norm = x.square().sum(dim=1)
    squares = torch.addmm(norm[None, :], x, x.T, alpha=-2).add_(norm[:, None])

    def back(grad: Tensor) -> tuple[Tensor]:
        both = _both_ways(grad)
        return (torch.addmm(both.sum(dim=1, keepdim=True) * x, both, x, beta=2, alpha=-2),)

    return squares.fill_diagonal_(0.0), back


def _own_unit_squares(rows: Tensor) -> tuple[Tensor, Back]:
    """The same of unit rows, whose lengths are known."""
    squares = torch.addmm(rows.new_full((1, 1), 2.0), rows, rows.T, alpha=-2)
    return squares.fill_diagonal_(0.0), lambda grad: (_product(_both_ways(grad), rows, -2.0),)


def _roots(squares: Tensor) -> tuple[Tensor, Back]:
    smallest = _smallest(squares)
    roots = squares.clamp(min=smallest).sqrt_()
    F.threshold(roots, 1.0001 * math.sqrt(smallest), 0.0, inplace=True)

    def back(grad: Tensor) -> tuple[Tensor]:
        slope = F.threshold(roots, 0.0, math.inf).mul_(2)  # no gradient where the root is 0
        return (torch.div(grad, slope, out=slope),)

    return roots, back


def _above_zero(squares: Tensor) -> tuple[Tensor, Back]:
    return squares.clamp_(min=0), lambda grad: (grad,)


def _from_one(sim: Tensor) -> tuple[Tensor, Back]:
    return sim.neg_().add_(1).fill_diagonal_(0.0), lambda grad: (-grad,)


_cosines = chain(to_unit, _gram)
_distances = chain(_own_squares, _roots)
_unit_distances = chain(to_unit, _own_unit_squares, _roots)
# rows with each other, the gradient written out
OWN: dict[Measure, Written] = {
    dot: _gram,
    cosine: _cosines,
    cosine_distance: chain(_cosines, _from_one),
    distance: _distances,
    squared_distance: chain(_own_squares, _above_zero),
    unit_distance: _unit_distances,
    unit_squared_distance: chain(to_unit, _own_unit_squares, _above_zero),
}


def listed(measure: Measure, anchor: Tensor, reference: Tensor) -> Written | None:
    """The measure between listed rows, its gradient written out; None where nobody wrote it."""

    def squares(rows: Tensor) -> tuple[Tensor, Back]:
        gaps = rows.index_select(0, anchor).sub_(rows.index_select(0, reference))  # [P, D]

        def back(grad: Tensor) -> tuple[Tensor]:
            on_gaps = gaps * (2 * grad)[:, None]
            on_rows = torch.zeros_like(rows).index_add_(0, anchor, on_gaps)
            return (on_rows.index_add_(0, reference, on_gaps, alpha=-1),)

        return gaps.square().sum(dim=1), back

    steps: dict[Measure, tuple[Written, ...]] = {
        distance: (squares, _roots),
        squared_distance: (squares,),
        unit_distance: (to_unit, squares, _roots),
        unit_squared_distance: (to_unit, squares),
    }
    return chain(*steps[measure]) if measure in steps else None


def log_sum_exp(values: Tensor, where: Tensor, dim: int = 1, scale: float = 1.0) -> Tensor:
    """log of the sum of exp(scale * values) over a mask; -inf, without gradient, where empty."""
    if values.numel() == 0:  # an empty batch has no largest entry
        return torch.logsumexp(scale * values, dim=dim)

    def formula(values: Tensor) -> Tensor:
        peak = torch.where(where, scale * values, -OFF).logsumexp(dim=dim)
        return torch.where(peak > -OFF / 2, peak, -math.inf)

    def written(values: Tensor) -> tuple[Tensor, Back]:
        exponents = torch.where(where, values, -OFF / scale).mul_(scale)
        peak, weights = soft_maximum(exponents, dim)
        slope = weights.mul_((peak > -OFF / 2) * scale)
        peak = torch.threshold_(peak, -OFF / 2, -math.inf).squeeze(dim)
        return peak, lambda grad: (slope * grad.unsqueeze(dim),)

    result: Tensor = differentiable(formula, written, values)
    return result


OFF = 1e30  # an exponent of -OFF is one that does not count: finite, so that nothing becomes NaN


def soft_maximum(exponents: Tensor, dim: int = 1) -> tuple[Tensor, Tensor]:  # [N, 1], [N, M]
    """log of the sum of exp(exponents), and each one's share of that sum, its gradient. (Softmax is
    several times faster than exp where entries are small.)"""
    fractions = torch.softmax(exponents, dim=dim)
    largest = exponents.amax(dim=dim, keepdim=True)
    return largest.sub_(fractions.amax(dim=dim, keepdim=True).log_()), fractions


def among(counts: Tensor) -> Tensor:
    """0 where a pair counts (1) and -OFF where it does not (0): exponents are added to it."""
    return (counts - 1).mul_(OFF)


def log1p_sum_exp(values: Tensor, where: Tensor, dim: int = 1, scale: float = 1.0) -> Tensor:
    """log(1 + sum of exp(scale * values) over a mask); 0, with zero gradient, where it is empty."""
    return F.softplus(log_sum_exp(values, where, dim, scale))


def positive_pairs(pos: Tensor) -> tuple[Tensor, Tensor]:  # two [P]
    """The places of positive pairs in a flattened matrix, and their anchors."""
    pair = pos.flatten().nonzero()[:, 0]
    return pair, pair // max(1, pos.shape[1])


def masked_mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over a mask; 0, attached to the graph, where the mask is empty."""
    return values.masked_fill(~where, 0.0).sum() / where.sum().clamp(min=1)


def weighted_mean(values: Tensor, counts: Tensor) -> Tensor:
    """Mean of values that count so often each; 0, attached to the graph, where nothing counts."""
    return torch.dot(values.flatten(), counts.flatten()) / counts.sum().clamp(min=1)

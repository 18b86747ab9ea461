"""Similarities, distances and masked sums of exponentials: the only distance code of the toolkit.

Rows of `x` [N, D] are compared with rows of `y` [M, D] (with each other when `y` is None). Every function
is differentiable and keeps finite gradients on coincident rows, antipodal rows and empty masks.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Measure = Callable[[Tensor, Tensor | None], Tensor]


def full_precision(x: Tensor) -> Tensor:
    """Half precision raised to float32; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def unit(x: Tensor) -> Tensor:
    """Rows on the unit sphere. The small constant keeps a zero row finite."""
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-12)


def dot(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Inner products [N, M] of raw rows."""
    return x @ (x if y is None else y).T


def cosine(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Cosine similarities [N, M]."""
    x = unit(x)
    return x @ (x if y is None else unit(y)).T


def squared_distance(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances [N, M] of raw rows; rounding never makes them negative."""
    x_norm = x.square().sum(dim=1)
    y_norm = x_norm if y is None else y.square().sum(dim=1)
    return (x_norm[:, None] + y_norm[None, :] - 2 * dot(x, y)).clamp(min=0)


def distance(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Euclidean distances [N, M] of raw rows."""
    return safe_sqrt(squared_distance(x, y))


def unit_squared_distance(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances [N, M] of the rows' directions: 2 - 2 cos."""
    return (2 - 2 * cosine(x, y)).clamp(min=0)


def unit_distance(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Euclidean distances [N, M] of the rows' directions."""
    return safe_sqrt(unit_squared_distance(x, y))


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0 instead of infinite."""
    smallest = 1e-12 if squares.dtype == torch.float64 else 1e-8
    is_zero = squares <= smallest
    return squares.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)


def log_sum_exp(values: Tensor, where: Tensor, dim: int = 1) -> Tensor:
    """log of the sum of exp(values) over a mask; -inf, with zero gradient, where the mask is empty."""
    return torch.logsumexp(values.masked_fill(~where, -math.inf), dim=dim)


def log1p_sum_exp(values: Tensor, where: Tensor, dim: int = 1) -> Tensor:
    """log(1 + sum of exp(values) over a mask); 0, with zero gradient, where the mask is empty."""
    return F.softplus(log_sum_exp(values, where, dim))


def masked_mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over a mask; 0, attached to the graph, where the mask is empty."""
    return values.masked_fill(~where, 0.0).sum() / where.sum().clamp(min=1)

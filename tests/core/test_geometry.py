import math

import pytest
import torch
from torch import Tensor

from unseen.core import geometry
from unseen.core.geometry import log1p_sum_exp, log_sum_exp

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(6, 4, generator=DRAW, dtype=torch.float64)
Y = torch.randn(5, 4, generator=DRAW, dtype=torch.float64)
MASK = torch.rand(6, 5, generator=DRAW) > 0.4
MASK[2] = False  # a row without any entry
MASK[:, 3] = False


def angle(u: Tensor, v: Tensor) -> float:
    return (u @ v / (u.norm() * v.norm())).item()


PLAIN = {
    "dot": lambda u, v: (u @ v).item(),
    "cosine": angle,
    "cosine_distance": lambda u, v: 1 - angle(u, v),
    "squared_distance": lambda u, v: ((u - v) ** 2).sum().item(),
    "distance": lambda u, v: (u - v).norm().item(),
    "unit_squared_distance": lambda u, v: 2 - 2 * angle(u, v),
    "unit_distance": lambda u, v: math.sqrt(max(0.0, 2 - 2 * angle(u, v))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_measures_equal_loops(name: str) -> None:
    measure, plain = getattr(geometry, name), PLAIN[name]
    expected = torch.tensor([[plain(u, v) for v in Y] for u in X], dtype=torch.float64)
    torch.testing.assert_close(measure(X, Y), expected)
    torch.testing.assert_close(measure(X[:5], Y, paired=True), expected[:5].diagonal())
    own = torch.tensor([[plain(u, v) for v in X] for u in X], dtype=torch.float64)
    torch.testing.assert_close(measure(X), own, atol=1e-7, rtol=1e-9)


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_of_measures(name: str) -> None:
    measure = getattr(geometry, name)
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    assert torch.autograd.gradcheck(measure, (x, y))
    assert torch.autograd.gradcheck(measure, (x,))
    assert torch.autograd.gradcheck(lambda x, y: measure(x, y, paired=True), (x[:5], y))


@pytest.mark.parametrize("name", [name for name in PLAIN if "distance" in name])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coincident_opposite_and_zero_rows(name: str, dtype: torch.dtype) -> None:
    measure = getattr(geometry, name)
    x = torch.nn.functional.normalize(torch.randn(40, 128, generator=DRAW)).to(dtype)
    x = torch.cat([x, x[:5], -x[:5], torch.zeros(2, 128, dtype=dtype)]).requires_grad_()
    dist = measure(x)
    assert dist.diagonal()[:-2].abs().max() < 1e-6  # not the 3e-4 that rounding makes of it
    if "cosine" not in name:
        assert (dist >= 0).all()
    (dist * torch.randn(dist.shape, generator=DRAW)).sum().backward()
    assert x.grad.isfinite().all()


def test_nan_is_not_hidden() -> None:
    x = X.clone()
    x[0, 0] = math.nan
    for name in PLAIN:
        assert getattr(geometry, name)(x, Y)[0].isnan().all()
    assert geometry.safe_sqrt(torch.tensor([math.nan])).isnan().all()


def test_safe_sqrt() -> None:
    squares = torch.tensor([4.0, 0.0, -1e-9, 1e-4], dtype=torch.float64, requires_grad=True)
    roots = geometry.safe_sqrt(squares)
    torch.testing.assert_close(roots, torch.tensor([2.0, 0, 0, 1e-2], dtype=torch.float64))
    roots.sum().backward()
    torch.testing.assert_close(squares.grad, torch.tensor([0.25, 0, 0, 50]).double())


def test_unit_rows_are_exact_and_a_zero_row_stays_zero() -> None:
    for length in (1e-5, 1.0, 1e5):
        torch.testing.assert_close(geometry.unit(length * X).norm(dim=1), torch.ones(6).double())
    assert not geometry.unit(torch.zeros(2, 3)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_row_but_zero_is_brought_to_unit_length(dtype: torch.dtype) -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    for scale in (1e15, 1.0, 1e-7, 1e-12, 1e-18):
        result = geometry.unit(rows * scale)
        torch.testing.assert_close(result, rows.new_tensor([[0.6, 0.8], [0.0, 0.0]]))
    (gradient,) = torch.autograd.grad(result[1].sum(), rows)
    assert gradient.isfinite().all()  # nothing says where a zero row should turn


@pytest.mark.parametrize("name", ["squared_distance", "unit_squared_distance", "cosine_distance"])
@pytest.mark.parametrize("paired", [True, False])
def test_a_row_is_at_no_distance_from_itself(name: str, paired: bool) -> None:
    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    result = getattr(geometry, name)(x, paired=paired)
    assert not (result if paired else result.diagonal()).any()


def test_full_precision() -> None:
    assert geometry.full_precision(X.half()).dtype == torch.float32
    assert geometry.full_precision(X.bfloat16()).dtype == torch.float32
    assert geometry.full_precision(X).dtype == torch.float64


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("scale", [1.0, -2.5, 40.0])
def test_log_sum_exp_equals_a_loop(dim: int, scale: float) -> None:
    values = torch.randn(6, 5, generator=DRAW, dtype=torch.float64)
    rows, masks = (values, MASK) if dim == 1 else (values.T, MASK.T)
    expected = []
    for row, mask in zip(rows, masks, strict=True):
        total = sum(math.exp(scale * v.item()) for v, kept in zip(row, mask, strict=True) if kept)
        expected.append(math.log(total) if total else -math.inf)
    result = log_sum_exp(values, MASK, dim, scale)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))
    with_one = torch.tensor([math.log1p(math.exp(e)) for e in expected], dtype=torch.float64)
    torch.testing.assert_close(log1p_sum_exp(values, MASK, dim, scale), with_one, atol=1e-8, rtol=0)
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: log1p_sum_exp(v, MASK, dim, scale), (values,))


def test_log_sum_exp_neither_overflows_nor_leaks_from_masked_entries() -> None:
    values = torch.tensor([[1e4, -1e4], [3e38, 1.0]], requires_grad=True)
    where = torch.tensor([[True, True], [False, True]])
    result = log_sum_exp(values, where, scale=2.0)
    torch.testing.assert_close(result, torch.tensor([2e4, 2.0]))
    result.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([[2.0, 0], [0, 2]]))
    assert log_sum_exp(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.bool)).shape == (0,)


def test_means() -> None:
    values, counts = torch.tensor([1.0, 5.0, -2.0]), torch.tensor([2.0, 0.0, 1.0])
    assert geometry.weighted_mean(values, counts) == 0
    assert geometry.weighted_mean(values, counts * 0) == 0
    assert geometry.masked_mean(values, values > 0) == 3
    assert geometry.masked_mean(values, values > 9) == 0

from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import SNRDistance
from torch import Tensor

from unseen.losses.snr import SnrLoss

VARIANTS = [{}, {"margin": 0.9, "weight": 1.0}, {"normalize": False, "weight": 0.0}]


def slow(case, margin=0.2, weight=0.005, normalize=True) -> float:
    def vector(v: Tensor) -> Tensor:
        return v / v.norm() if normalize else v

    def ratio(u: Tensor, v: Tensor) -> float:
        return ((vector(u) - vector(v)).var() / vector(u).var()).item()

    terms, sums = [], []
    for a, p, n in case.triplets:
        near = ratio(case.x[a], case.columns[p])
        terms.append(max(0.0, near - ratio(case.x[a], case.columns[n]) + margin))
        sums.append(abs(vector(case.x[a]).sum().item()))
    return sum(terms) / max(1, sum(t > 0 for t in terms)) + weight * sum(sums) / len(sums)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(SnrLoss(**values)).item() == pytest.approx(slow(case, **values), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(x, **values) -> float:
        return SnrLoss(**values)(x.to(dtype), spec.labels, spec.TR).item()

    assert of(spec.T, **SnrLoss.PRESETS["revisit_code"]) == pytest.approx(2.541362, abs=close)
    assert of(spec.T, **SnrLoss.PRESETS["revisit"]) == pytest.approx(2.546563, abs=close)
    assert of(spec.U, weight=0.0, normalize=False) == pytest.approx(5.670478, abs=close)
    assert of(spec.COL, weight=0.0) == pytest.approx(0.2, abs=close)


def test_a_common_scale_and_a_constant_do_not_matter(cases) -> None:
    case, loss = cases[0], SnrLoss(weight=0.0, normalize=False)
    assert case(loss, case.x * 7).item() == pytest.approx(case(loss).item(), abs=1e-9)
    moved = case.x + torch.arange(12.0)[:, None]
    assert case(loss, moved).item() == pytest.approx(case(loss).item(), abs=1e-9)


def test_the_ratio_squares_what_the_source_prints_with_a_sign() -> None:
    x = torch.tensor([[1.0, 0, 0, 0], [1, 0.1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
    ratio = SnrLoss(normalize=False)._ratios(x, None)[0, 1]
    assert ratio.item() == pytest.approx(0.01, abs=1e-12)


def test_a_constant_vector_stays_finite() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    loss = SnrLoss()(x, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()


def test_equals_the_peer(cases) -> None:
    x, y = cases[0].x, cases[0].y
    peer = pml.TripletMarginLoss(margin=0.2, distance=SNRDistance())
    assert SnrLoss(weight=0.0)(x, y).item() == pytest.approx(peer(x, y).item(), abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(SnrLoss(**values), x), (x,))


@pytest.mark.parametrize("values", [{"margin": -1.0}, {"weight": -1.0}])
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        SnrLoss(**values)

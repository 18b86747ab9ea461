import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml

from unseen.losses.angular import AngularLoss

VARIANTS = [{}, {"alpha": 36.0, "weight": 0.5, "penalty": "norm"}, {"n_pair": False, "nu": 0.0}]


def slow(case, *, alpha=45.0, weight=2.0, nu=0.005, penalty="squared", n_pair=True) -> float:
    t = math.tan(math.radians(alpha)) ** 2
    total = 0.0
    for a, p in case.positives:
        raw = [case.x[a], case.columns[p]]
        anchor, positive = (v / v.norm() for v in raw)
        angular, products = 0.0, 0.0
        for n in {n for b, n in case.negatives if b == a}:
            negative = case.columns[n] / case.columns[n].norm()
            f = 4 * t * (anchor + positive) @ negative - 2 * (1 + t) * anchor @ positive
            angular += math.exp(f.item())
            products += math.exp((raw[0] @ case.columns[n] - raw[0] @ raw[1]).item())
        total += weight * math.log1p(angular) + (math.log1p(products) if n_pair else 0.0)
    power = 2 if penalty == "squared" else 1
    length = sum(v.norm().item() ** power for v in case.x) / len(case.x)
    return total / len(case.positives) + nu * length


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(AngularLoss(**values)).item() == pytest.approx(slow(case, **values), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    alone = {"weight": 1.0, "nu": 0.0, "n_pair": False}

    def of(x, **values) -> float:
        return AngularLoss(**values)(x.to(dtype), spec.labels).item()

    for x in (spec.T, spec.U):
        assert of(x, **alone) == pytest.approx(0.790383, abs=close)
        assert of(x, alpha=40.0, **alone) == pytest.approx(0.563477, abs=close)
    assert of(spec.U, **AngularLoss.PRESETS["revisit_code"]) == pytest.approx(2.586993, abs=close)
    assert of(spec.T, **AngularLoss.PRESETS["revisit_code"]) == pytest.approx(2.608303, abs=close)
    assert of(spec.COL, **alone) == pytest.approx(math.log1p(4 * math.exp(4)), abs=10 * close)
    assert of(spec.ORT, **alone) == pytest.approx(math.log1p(4 * math.exp(-4)), abs=close)


def test_many_blocks_equal_one(monkeypatch: pytest.MonkeyPatch, cases) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        whole = case(AngularLoss(), x)
        (gradient,) = torch.autograd.grad(whole, x)
        with monkeypatch.context() as patch:
            patch.setattr("unseen.losses.angular.BLOCK", 30)
            parts = case(AngularLoss(), x)
            assert parts.item() == pytest.approx(whole.item(), abs=1e-12)
            torch.testing.assert_close(torch.autograd.grad(parts, x)[0], gradient)


def test_equals_the_peer(cases) -> None:
    x, y = torch.nn.functional.normalize(cases[0].x), cases[0].y  # the peer leaves negatives raw
    ours = AngularLoss(alpha=40.0, weight=1.0, nu=0.0, n_pair=False)
    assert ours(x, y).item() == pytest.approx(pml.AngularLoss(alpha=40)(x, y).item(), abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(AngularLoss(**values), x), (x,))


@pytest.mark.parametrize(
    "values", [{"alpha": 90.0}, {"weight": -1.0}, {"nu": -1.0}, {"penalty": "none"}]
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        AngularLoss(**values)

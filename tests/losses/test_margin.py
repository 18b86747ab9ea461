from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from unseen.losses.margin import MarginLoss

VARIANTS = [
    {},
    {"margin": 0.4, "beta": 0.9, "boundary": "shared"},
    {"boundary": "fixed", "normalizer": "active_triplets"},
    {"margin": 0.05, "beta": 1.4, "normalizer": "active_triplets"},
]


def distance(u: Tensor, v: Tensor) -> float:
    return (u / u.norm() - v / v.norm()).norm().item()


def slow(case, boundary: list[float], margin: float, normalizer: str) -> float:
    total, terms, triplets = 0.0, 0, 0
    for a, p, n in case.triplets:
        beta = boundary[case.y[a]]
        pull = max(0.0, distance(case.x[a], case.columns[p]) - beta + margin)
        push = max(0.0, beta - distance(case.x[a], case.columns[n]) + margin)
        total += pull + push
        terms += (pull > 0) + (push > 0)
        triplets += pull > 0 or push > 0
    return total / max(1, terms if normalizer == "active_terms" else triplets)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    loss = MarginLoss(10, **values).double()
    with torch.no_grad():
        loss.beta += torch.linspace(-0.2, 0.3, len(loss.beta)).double()
    boundary = loss.beta.expand(10).tolist()
    expected = slow(case, boundary, loss.margin, loss.normalizer)
    assert case(loss).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(x, learnt=None, **values) -> float:
        loss = MarginLoss(3, **values).to(dtype)
        if learnt is not None:
            loss.beta.data = torch.tensor(learnt, dtype=dtype)
        return loss(x.to(dtype), spec.labels, spec.TR).item()

    assert of(spec.T, beta=0.6) == pytest.approx(0.355978, abs=close)
    assert of(spec.T, **MarginLoss.PRESETS["revisit"]) == pytest.approx(0.261814, abs=close)
    assert of(spec.T, **MarginLoss.PRESETS["revisit_code"]) == pytest.approx(0.392721, abs=close)
    assert of(spec.T, learnt=[0.6, 0.6, 1.2]) == pytest.approx(0.208028, abs=close)
    assert of(spec.T, **MarginLoss.PRESETS["thesis"]) == pytest.approx(0.524691, abs=close)
    assert of(spec.COL, beta=1.2) == pytest.approx(1.4, abs=10 * close)
    assert of(spec.COL, beta=0.6) == pytest.approx(0.8, abs=10 * close)


def test_gradient_of_the_boundary(spec: SimpleNamespace) -> None:
    loss = MarginLoss(3).double()
    loss(spec.T, spec.labels, spec.TR).backward()
    torch.testing.assert_close(loss.beta.grad, torch.tensor([2 / 9, 0, -1 / 9]).double())
    ideal = MarginLoss(3).double()
    x = spec.ORT.clone().requires_grad_()
    priced = ideal(x, spec.labels, spec.TR)
    priced.backward()
    assert priced.item() == 0
    assert not x.grad.any()
    assert not ideal.beta.grad.any()


def test_switched_tuples_push_inside_the_class_and_move_its_boundary(spec: SimpleNamespace) -> None:
    item, partner = torch.arange(6), torch.tensor([1, 0, 3, 2, 5, 4])
    loss = MarginLoss(3).double()
    loss(spec.T, spec.labels, (item, item, partner)).backward()
    torch.testing.assert_close(loss.beta.grad, torch.ones(3).double() / 3)


def test_the_boundary_is_learnt_or_not() -> None:
    assert MarginLoss(5).beta.shape == (5,)
    assert MarginLoss(5, boundary="shared").beta.shape == (1,)
    assert not MarginLoss(5, boundary="fixed").beta.requires_grad
    (group,) = MarginLoss(5, **MarginLoss.PRESETS["revisit"]).parameter_groups(1e-5)
    assert (group["lr"], group["weight_decay"]) == (5e-4, 0)


def test_equals_the_peer(cases) -> None:
    for case in cases[:3]:
        peer = pml.MarginLoss(margin=0.2, nu=0, beta=1.1)
        indices = None if case.tuples is None else tuple(case.tuples)
        expected = peer(case.x, case.y, indices).item()
        result = case(MarginLoss(10, beta=1.1, boundary="shared").double()).item()
        assert result == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    loss = MarginLoss(10, **values).double()
    beta = loss.beta.detach().clone().requires_grad_()
    for case in cases[:6]:

        def priced(x, beta, case=case):
            return torch.func.functional_call(
                loss, {"beta": beta}, (x, case.y, case.tuples, case.rx, case.ry)
            )

        assert torch.autograd.gradcheck(priced, (case.x.clone().requires_grad_(), beta))


@pytest.mark.parametrize(
    "values",
    [{"boundary": "free"}, {"normalizer": "all"}, {"margin": -1.0}, {"beta": 2.0}, {"lr": -1.0}],
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        MarginLoss(5, **values)

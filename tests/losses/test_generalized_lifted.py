import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance

from unseen.losses.generalized_lifted import GeneralizedLiftedLoss

VARIANTS = [{}, {"penalty": "norm", "nu": 0.3}, {"margin": -1.5, "nu": 0.0}]


def slow(case, margin=1.0, nu=0.005, penalty="squared") -> float:
    costs = []
    for i in range(len(case.x)):
        far = [
            (case.x[i] - case.columns[p]).norm().item() for a, p in set(case.positives) if a == i
        ]
        near = [
            (case.x[i] - case.columns[n]).norm().item() for a, n in set(case.negatives) if a == i
        ]
        if far and near:
            pull = math.log(sum(math.exp(d) for d in far))
            push = math.log(sum(math.exp(margin - d) for d in near))
            costs.append(max(0.0, pull + push))
    power = 2 if penalty == "squared" else 1
    length = sum(v.norm().item() ** power for v in case.x) / len(case.x)
    return sum(costs) / len(costs) + nu * length


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    result = case(GeneralizedLiftedLoss(**values)).item()
    assert result == pytest.approx(slow(case, **values), abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(x, **values) -> float:
        return GeneralizedLiftedLoss(**values)(x.to(dtype), spec.labels).item()

    assert of(spec.T, nu=0.0) == pytest.approx(1.697759, abs=close)
    assert of(spec.U, nu=0.0) == pytest.approx(1.852542, abs=close)
    presets = GeneralizedLiftedLoss.PRESETS
    assert of(spec.U, **presets["revisit_code"]) == pytest.approx(1.859209, abs=close)
    assert of(spec.U, **presets["revisit"]) == pytest.approx(1.862959, abs=close)
    assert of(spec.COL, nu=0.0) == pytest.approx(1 + math.log(4), abs=10 * close)
    assert of(spec.ORT, nu=0.0) == pytest.approx(1 - math.sqrt(2) + math.log(4), abs=close)


def test_may_be_moved_and_turned_but_not_scaled(cases) -> None:
    case, loss = cases[0], GeneralizedLiftedLoss(nu=0.0)
    assert case(loss, case.x - 5).item() == pytest.approx(case(loss).item(), abs=1e-9)
    assert case(loss, case.x * 2).item() != pytest.approx(case(loss).item(), abs=1e-3)


def test_equals_the_peer() -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(12, 8, generator=draw, dtype=torch.float64)
    y = torch.arange(12) % 4  # the peer averages over anchors without positives, too
    raw = LpDistance(normalize_embeddings=False)
    peer = pml.GeneralizedLiftedStructureLoss(neg_margin=1, distance=raw)
    assert GeneralizedLiftedLoss(nu=0.0)(x, y).item() == pytest.approx(peer(x, y).item(), abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6:2]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x, c=case: c(GeneralizedLiftedLoss(**values), x), (x,)
        )


@pytest.mark.parametrize("values", [{"nu": -1.0}, {"penalty": "cubed"}, {"margin": math.inf}])
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        GeneralizedLiftedLoss(**values)

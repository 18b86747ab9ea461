import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from unseen.losses.lifted_structure import LiftedStructureLoss
from unseen.miners.multi_similarity import MultiSimilarityMiner as Miner

VARIANTS = [
    {},
    {"margin": 0.4},
    {"normalize": False, "margin": 2.0},
    *LiftedStructureLoss.PRESETS.values(),
    {"form": "sharp", "alpha": 10.0, "beta": 3.0},
]


def lse(values: list[float]) -> float:
    return math.log(sum(map(math.exp, values)))


def cosine(u: Tensor, v: Tensor) -> float:
    return (u @ v / (u.norm() * v.norm())).item()


def slow_pairs(case, margin: float, normalize: bool) -> float:
    def distance(u: Tensor, v: Tensor) -> float:
        return ((u / u.norm() - v / v.norm()) if normalize else (u - v)).norm().item()

    negatives = set(case.negatives)
    terms = []
    for i, j in case.positives:
        exponents = [margin - distance(case.x[i], case.columns[k]) for a, k in negatives if a == i]
        if case.rx is None:  # j is an anchor of the batch: its own negatives
            exponents += [margin - distance(case.x[j], case.x[k]) for a, k in negatives if a == j]
        else:  # j is a reference: the anchors it is a negative of
            exponents += [margin - distance(case.x[a], case.rx[j]) for a, k in negatives if k == j]
        cost = lse(exponents) + distance(case.x[i], case.columns[j]) if exponents else 0.0
        terms.append(max(0.0, cost) ** 2 / 2)
    return sum(terms) / len(terms)


def slow_anchors(case, form: str, margin: float, alpha: float, beta: float) -> float:
    total, valid = 0.0, 0
    for i in range(len(case.x)):
        pull = [cosine(case.x[i], case.columns[p]) for a, p in set(case.positives) if a == i]
        push = [cosine(case.x[i], case.columns[n]) for a, n in set(case.negatives) if a == i]
        if not pull or not push:
            continue
        valid += 1
        if form == "hinge":
            total += max(0.0, lse([margin - s for s in pull]) + lse(push))
        else:
            total += 2 / beta * lse([-beta * s for s in pull])
            total += 2 / alpha * lse([alpha * s for s in push])
    return total / (valid if form == "hinge" else len(case.x))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    full = {"form": "pairs", "margin": 1.0, "normalize": True, "alpha": 40.0, "beta": 2.0} | values
    if full["form"] == "pairs":
        expected = slow_pairs(case, full["margin"], full["normalize"])
    else:
        expected = slow_anchors(case, full["form"], full["margin"], full["alpha"], full["beta"])
    assert case(LiftedStructureLoss(**values)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    x, y = spec.T.to(dtype), spec.labels
    presets = LiftedStructureLoss.PRESETS
    assert LiftedStructureLoss()(x, y).item() == pytest.approx(2.907020, abs=close)
    assert LiftedStructureLoss(**presets["thesis"])(x, y).item() == pytest.approx(
        1.065237, abs=close
    )
    sharp = LiftedStructureLoss(**presets["thesis_code"])
    assert sharp(x, y).item() == pytest.approx(-0.408657, abs=close)
    assert sharp(x, y, Miner(0.1)(x, y)).item() == pytest.approx(0.104018, abs=close)
    collapsed = LiftedStructureLoss()(spec.COL.to(dtype), y).item()
    assert collapsed == pytest.approx((1 + math.log(8)) ** 2 / 2, abs=10 * close)


def test_raw_embeddings_may_be_moved(cases) -> None:
    case, loss = cases[0], LiftedStructureLoss(normalize=False)
    assert case(loss, case.x + 3).item() == pytest.approx(case(loss).item(), abs=1e-9)
    assert case(loss, case.x * 3).item() != pytest.approx(case(loss).item(), abs=1e-3)


def test_equals_the_peer(cases) -> None:
    for case in cases[:6]:
        if case.rx is None and case.tuples is None:
            peer = pml.LiftedStructureLoss(neg_margin=1)
            expected = peer(case.x, case.y).item()
            assert case(LiftedStructureLoss()).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS[2:5], ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(LiftedStructureLoss(**values), x), (x,))


@pytest.mark.parametrize(
    "values",
    [{"form": "soft"}, {"margin": math.nan}, {"alpha": 0.0}, {"normalize": False, "form": "hinge"}],
)
def test_bad_values(values) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        LiftedStructureLoss(**values)

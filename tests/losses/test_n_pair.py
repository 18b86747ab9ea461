import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml

from unseen.core.tuples import Pairs
from unseen.losses.n_pair import NPairLoss

VARIANTS = [
    {},
    {"normalize": True, "nu": 0.0},
    {"penalty": "norm", "nu": 0.1, "prescale": 0.25},
    {"negatives": "positives"},
    {"negatives": "positives", "normalize": True, "nu": 0.02},
    {"negatives": "both", "nu": 0.0, "prescale": 2.0},
    {"negatives": "positives", "reduction": "sum"},
    {"reduction": "sum", "nu": 0.1},
]


def slow(
    case,
    *,
    negatives="batch",
    normalize=False,
    nu=0.005,
    penalty="squared",
    reduction="mean",
    prescale=1.0,
) -> float:
    def product(i: int, j: int) -> float:
        u, v = case.x[i], case.columns[j]
        if normalize:
            return (u @ v / (u.norm() * v.norm())).item()
        return (u @ v).item() * prescale**2

    rows, columns = case.y.tolist(), case.column_labels
    terms = []
    for a, p in case.positives:
        near = product(a, p)
        if negatives == "batch":
            others = [product(b, n) for b, n in set(case.negatives) if b == a]
        else:
            others = [product(a, q) for _, q in case.positives if columns[q] != rows[a]]
        term = math.log1p(sum(math.exp(g - near) for g in others))
        if negatives == "both":
            others = [product(b, p) for b, _ in case.positives if rows[b] != columns[p]]
            term = (term + math.log1p(sum(math.exp(g - near) for g in others))) / 2
        terms.append(term)
    power = 2 if penalty == "squared" else 1
    length = sum((prescale * v.norm().item()) ** power for v in case.x) / len(case.x)
    return sum(terms) / (len(terms) if reduction == "mean" else 1) + nu * length


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(NPairLoss(**values)).item() == pytest.approx(slow(case, **values), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    nothing = torch.empty(0, dtype=torch.long)
    one_per_class = Pairs(torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5]), nothing, nothing)

    def of(x, tuples=None, **values) -> float:
        return NPairLoss(**values)(x.to(dtype), spec.labels, tuples).item()

    assert of(spec.T, nu=0.0) == pytest.approx(1.022538, abs=close)
    assert of(spec.U, nu=0.0) == pytest.approx(0.999561, abs=close)
    assert of(spec.U, **NPairLoss.PRESETS["revisit_code"]) == pytest.approx(1.006227, abs=close)
    assert of(spec.U, **NPairLoss.PRESETS["revisit"]) == pytest.approx(1.009977, abs=close)
    assert of(spec.COL, nu=0.0) == pytest.approx(math.log(5), abs=close)
    assert of(spec.ORT, nu=0.0) == pytest.approx(math.log(1 + 4 / math.e), abs=close)
    sohn = {"negatives": "positives", "nu": 0.0}
    assert of(spec.T, one_per_class, **sohn) == pytest.approx(0.714691, abs=close)
    assert of(spec.U, one_per_class, **sohn) == pytest.approx(0.908192, abs=close)
    assert of(spec.COL, one_per_class, **sohn) == pytest.approx(math.log(3), abs=close)
    assert of(spec.ORT, one_per_class, **sohn) == pytest.approx(0.551445, abs=close)
    for preset, count in (("density", 3), ("thesis_code", 1)):  # on directions: U is T
        result = of(spec.U, one_per_class, **NPairLoss.PRESETS[preset])
        assert result == pytest.approx(count * 0.714691, abs=3 * close)
    both_ways = of(spec.T, one_per_class, nu=0.0, negatives="both")
    assert both_ways == pytest.approx(0.702932, abs=close)


def test_one_class_more_never_lowers_the_price_of_the_others(cases) -> None:
    case = cases[0]
    without = case.y != 7  # the class of one item
    fewer = NPairLoss(nu=0.0)(case.x[without], case.y[without])
    assert fewer.item() <= case(NPairLoss(nu=0.0)).item()


def test_equals_the_peer(spec: SimpleNamespace) -> None:
    nothing = torch.empty(0, dtype=torch.long)
    pairs = Pairs(torch.tensor([1, 2, 5]), torch.tensor([0, 3, 4]), nothing, nothing)
    expected = pml.NPairsLoss()(spec.U, spec.labels, tuple(pairs)).item()
    ours = NPairLoss("positives", normalize=True, nu=0.0)(spec.U, spec.labels, pairs).item()
    assert ours == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(NPairLoss(**values), x), (x,))


@pytest.mark.parametrize(
    "values",
    [
        {"negatives": "hard"},
        {"penalty": "max"},
        {"nu": -0.1},
        {"prescale": 0.0},
        {"reduction": "max"},
    ],
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        NPairLoss(**values)

import math
from types import SimpleNamespace

import pytest
import torch

from unseen.losses.binomial_deviance import BinomialDevianceLoss

VARIANTS = [{}, {"alpha": 3.0, "beta": 0.1, "cost": 4.0}, {"reduction": "sum_anchors"}]


def slow(case, alpha=2.0, beta=0.5, cost=25.0, reduction="mean") -> float:
    def priced(pairs: list[tuple[int, int]], slope: float) -> dict[int, list[float]]:
        terms: dict[int, list[float]] = {}
        for i, j in pairs:
            u, v = case.x[i], case.columns[j]
            exponent = slope * ((u @ v / (u.norm() * v.norm())).item() - beta)
            terms.setdefault(i, []).append(
                max(0.0, exponent) + math.log1p(math.exp(-abs(exponent)))
            )
        return terms

    total = 0.0
    for terms in (priced(case.positives, -alpha), priced(case.negatives, alpha * cost)):
        if reduction == "mean":
            everything = [t for of_anchor in terms.values() for t in of_anchor]
            total += sum(everything) / len(everything)
        else:
            total += sum(sum(t) / len(t) for t in terms.values())
    return total


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    result = case(BinomialDevianceLoss(**values)).item()
    assert result == pytest.approx(slow(case, **values), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(x, **values) -> float:
        return BinomialDevianceLoss(**values)(x.to(dtype), spec.labels).item()

    assert of(spec.T) == pytest.approx(1.720767, abs=close)
    horde = of(spec.T, **BinomialDevianceLoss.PRESETS["horde"])
    assert horde == pytest.approx(10.324604, abs=10 * close)
    assert of(spec.COL) == pytest.approx(25.313262, abs=10 * close)
    assert of(spec.ORT) == pytest.approx(0.313262, abs=close)


def test_falls_with_similar_positives_and_rises_with_similar_negatives(cases) -> None:
    case = cases[0]
    x = torch.nn.functional.normalize(case.x)
    i, p = case.positives[0]
    only = torch.tensor([i]), torch.tensor([p])
    none = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    closer = x.clone()
    closer[i] += 0.2 * x[p]
    loss = BinomialDevianceLoss()
    assert loss(closer, case.y, (*only, *none)) < loss(x, case.y, (*only, *none))
    assert loss(closer, case.y, (*none, *only)) > loss(x, case.y, (*none, *only))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x, c=case: c(BinomialDevianceLoss(**values), x), (x,)
        )


@pytest.mark.parametrize(
    "values", [{"alpha": 0.0}, {"beta": 2.0}, {"cost": -1.0}, {"reduction": "sum"}]
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        BinomialDevianceLoss(**values)

import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import CosineSimilarity
from torch import Tensor

from unseen.losses.triplet import TripletLoss

VARIANTS = [
    {"margin": margin, "distance": distance, "reduction": reduction}
    for margin, distance in ((0.2, "squared"), (0.7, "euclidean"), (0.4, "cosine"))
    for reduction in ("mean", "active", "sum")
]


def distance(u: Tensor, v: Tensor, kind: str) -> float:
    u, v = (u / u.norm()).tolist(), (v / v.norm()).tolist()
    if kind == "cosine":
        return 1 - sum(a * b for a, b in zip(u, v, strict=True))
    square = sum((a - b) ** 2 for a, b in zip(u, v, strict=True))
    return square if kind == "squared" else math.sqrt(square)


def slow(case, margin: float, kind: str, reduction: str) -> float:
    terms = []
    for a, p, n in case.triplets:
        near = distance(case.x[a], case.columns[p], kind)
        far = distance(case.x[a], case.columns[n], kind)
        terms.append(max(0.0, near - far + margin))
    count = sum(t > 0 for t in terms) if reduction == "active" else len(terms)
    count = 1 if reduction == "sum" else count
    return sum(terms) / max(1, count)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(TripletLoss(**values)).item() == pytest.approx(
        slow(case, *values.values()), abs=1e-10
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(preset: str, tuples=None) -> float:
        return TripletLoss(**TripletLoss.PRESETS[preset])(
            spec.T.to(dtype), spec.labels, tuples
        ).item()

    assert of("revisit_code", spec.TR) == pytest.approx(0.137351, abs=close)
    assert of("revisit", spec.TR) == pytest.approx(0.114148, abs=close)
    assert of("density") == pytest.approx(4.702602, abs=10 * close)
    assert of("horde") == pytest.approx(0.240341, abs=close)
    semi_hard = tuple(torch.tensor([[2], [3], [0]]))
    assert of("thesis_code", semi_hard) == pytest.approx(0.070398, abs=close)


def test_collapsed_ideal_and_switched(spec: SimpleNamespace) -> None:
    assert TripletLoss()(spec.COL, spec.labels, spec.TR).item() == pytest.approx(0.2, abs=1e-12)
    assert TripletLoss()(spec.ORT, spec.labels).item() == 0
    item, partner = torch.arange(6), torch.tensor([1, 0, 3, 2, 5, 4])
    switched = TripletLoss()(spec.T, spec.labels, (item, item, partner))
    assert switched.item() == pytest.approx(0.004205, abs=1e-6)


def test_a_margin_on_the_square_is_half_of_it_on_the_cosine(cases) -> None:
    on_square, on_cosine = TripletLoss(0.4, "squared"), TripletLoss(0.2, "cosine")
    assert cases[0](on_square).item() == pytest.approx(2 * cases[0](on_cosine).item(), abs=1e-12)


def test_many_blocks_equal_one(monkeypatch: pytest.MonkeyPatch, cases) -> None:
    x = cases[0].x.clone().requires_grad_()
    whole = cases[0](TripletLoss(0.7), x)
    (gradient,) = torch.autograd.grad(whole, x)
    monkeypatch.setattr("unseen.core.hinges.BLOCK", 25)
    parts = cases[0](TripletLoss(0.7), x)
    assert parts.item() == pytest.approx(whole.item(), abs=1e-12)
    torch.testing.assert_close(torch.autograd.grad(parts, x)[0], gradient)


def test_all_triplets_are_the_list_of_all_triplets(cases) -> None:
    """Value and gradient of the blockwise sum against plain gathers."""
    case = cases[0]
    listed = tuple(torch.tensor(case.triplets).T)
    for values in VARIANTS:
        x = case.x.clone().requires_grad_()
        by_sum = torch.autograd.grad(TripletLoss(**values)(x, case.y), x)[0]
        by_list = torch.autograd.grad(TripletLoss(**values)(x, case.y, listed), x)[0]
        torch.testing.assert_close(by_sum, by_list)


def test_equals_the_peer(cases) -> None:
    x, y = cases[0].x, cases[0].y
    peer = pml.TripletMarginLoss(margin=0.3)
    ours = TripletLoss(0.3, "euclidean", "active")
    assert ours(x, y).item() == pytest.approx(peer(x, y).item(), abs=1e-6)
    peer = pml.TripletMarginLoss(margin=0.3, distance=CosineSimilarity())
    ours = TripletLoss(0.3, "cosine", "active")
    assert ours(x, y).item() == pytest.approx(peer(x, y).item(), abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6:2]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(TripletLoss(**values), x), (x,))


@pytest.mark.parametrize("values", [{"distance": "l1"}, {"reduction": "max"}, {"margin": -0.1}])
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        TripletLoss(**values)

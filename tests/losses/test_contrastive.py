import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from unseen.losses.contrastive import ContrastiveLoss

VARIANTS = [
    {},
    {"pos_margin": 0.3},
    {"distance": "squared", "neg_margin": 1.5},
    {"distance": "cosine", "neg_margin": 0.9, "reduction": "anchors"},
    {"neg_margin": 1.2, "reduction": "active", "pos_margin": 0.9},
    {"distance": "cosine", "reduction": "active"},
    {"distance": "squared", "reduction": "active"},
    {"reduction": "sum", "pos_margin": 0.2, "factor": 3.0},
    {"pos_margin": 1.3, "positive_power": 2, "reduction": "anchors", "factor": 2.0},
    *ContrastiveLoss.PRESETS.values(),
]


def distance(u: Tensor, v: Tensor, kind: str) -> float:
    u, v = (u / u.norm()).tolist(), (v / v.norm()).tolist()
    if kind == "cosine":
        return 1 - sum(a * b for a, b in zip(u, v, strict=True))
    square = sum((a - b) ** 2 for a, b in zip(u, v, strict=True))
    return square if kind == "squared" else math.sqrt(square)


def slow(case, *, distance_="euclidean", pos=0.0, neg=1.0, reduction="mean", power=1, factor=1.0):
    pull = [
        max(0.0, distance(case.x[a], case.columns[p], distance_) - pos) ** power
        for a, p in case.positives
    ]
    push = [
        max(0.0, neg - distance(case.x[a], case.columns[n], distance_)) for a, n in case.negatives
    ]
    if reduction == "anchors":
        return factor * (sum(pull) + sum(push)) / len(case.x)
    if reduction == "sum":
        return factor * (sum(pull) + sum(push)) / 2
    # in floating point an item is a hair away from itself, which is not active
    num_pull = sum(t > 1e-9 for t in pull) if reduction == "active" else len(pull)
    num_push = len(push) if reduction == "mean" else sum(t > 0 for t in push)
    return factor * (sum(pull) / max(1, num_pull) + sum(push) / max(1, num_push))


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    slow_values = {
        {
            "distance": "distance_",
            "pos_margin": "pos",
            "neg_margin": "neg",
            "positive_power": "power",
        }.get(key, key): value
        for key, value in values.items()
    }
    assert case(ContrastiveLoss(**values)).item() == pytest.approx(
        slow(case, **slow_values), abs=1e-10
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(tuples=None, **values) -> float:
        return ContrastiveLoss(**values)(spec.T.to(dtype), spec.labels, tuples).item()

    presets = ContrastiveLoss.PRESETS
    assert of(spec.TR, **presets["revisit"]) == pytest.approx(0.941304, abs=close)
    assert of() == pytest.approx(0.862314, abs=close)
    assert of(distance="squared") == pytest.approx(0.824494, abs=close)
    # sums over unordered pairs, as printed: half of six anchors; minus S instead of 1 - S
    assert of(**presets["density"]) == pytest.approx(2.872549, abs=close)
    assert 3 * of(**presets["thesis"]) - 3 == pytest.approx(-1.563725, abs=close)
    assert of(**presets["thesis"]) == pytest.approx(0.478758, abs=close)
    assert of(**presets["thesis"] | {"reduction": "mean"}) == pytest.approx(0.412247, abs=close)
    assert of(**presets["thesis_code"]) == pytest.approx(0.835984, abs=close)
    assert of(**presets["horde"]) == pytest.approx(0.231083, abs=close)


def test_collapsed_and_ideal(spec: SimpleNamespace) -> None:
    assert ContrastiveLoss()(spec.COL, spec.labels, spec.TR).item() == 1.0
    assert ContrastiveLoss()(spec.ORT, spec.labels, spec.TR).item() == 0.0
    assert ContrastiveLoss()(spec.COL.float(), spec.labels, spec.TR).item() == pytest.approx(
        1, abs=1e-3
    )


def test_switched_tuples_push_inside_the_class(spec: SimpleNamespace) -> None:
    item, partner = torch.arange(6), torch.tensor([1, 0, 3, 2, 5, 4])
    for dtype in (torch.float64, torch.float32):
        result = ContrastiveLoss()(spec.T.to(dtype), spec.labels, (item, item, partner))
        assert result.item() == pytest.approx(0.189040, abs=1e-5)


@pytest.mark.parametrize("kind", ["euclidean", "squared", "cosine"])
@pytest.mark.parametrize("copies", [1, 8])  # short lists are compared pair by pair
def test_an_item_beside_itself_is_never_active(kind: str, copies: int) -> None:
    """The mean is over the positive pairs that are pairs, in float32 too."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 64, generator=draw)
    anchor, other = torch.arange(40), torch.arange(40) ^ 1
    is_switched = anchor % 4 < 3
    positive = torch.where(is_switched, anchor, other)
    triplets = [t.repeat(copies) for t in (anchor, positive, other)]
    loss = ContrastiveLoss(distance=kind, neg_margin=0.0, reduction="active")
    pull = [distance(x[a], x[p], kind) for a, p in zip(anchor, positive, strict=True) if a != p]
    result = loss(x, anchor // 2, tuple(triplets)).item()
    assert result == pytest.approx(sum(pull) / len(pull), rel=1e-5)


def test_equals_the_peer(cases) -> None:
    case = cases[0]
    peer = pml.ContrastiveLoss(pos_margin=0, neg_margin=1.3)
    ours = ContrastiveLoss(neg_margin=1.3, reduction="active")
    assert case(ours).item() == pytest.approx(peer(case.x, case.y).item(), abs=1e-6)


@pytest.mark.parametrize("values", VARIANTS[:5], ids=str)
def test_gradient(cases, values) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(ContrastiveLoss(**values), x), (x,))


@pytest.mark.parametrize(
    "values",
    [
        {"distance": "manhattan"},
        {"reduction": "median"},
        {"positive_power": 3},
        {"neg_margin": -1.0},
        {"factor": 0.0},
    ],
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        ContrastiveLoss(**values)

import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import CircleLoss as PeerLoss
from torch import Tensor

from unseen.core.tuples import Pairs
from unseen.losses.circle import CircleLoss

UNBALANCED = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1, 3, 3, 3])


def slow(  # the loops of the formula, nothing else
    x: Tensor,
    y: Tensor,
    margin: float,
    gamma: float,
    refs: Tensor | None = None,
    ry: Tensor | None = None,
) -> float:
    columns, column_labels = (x, y) if refs is None or ry is None else (refs, ry)
    prices = []
    for a in range(len(x)):
        pull = push = 0.0
        for j in range(len(columns)):
            if refs is None and j == a:
                continue
            s = float(x[a] @ columns[j] / (x[a].norm() * columns[j].norm()))
            if y[a] == column_labels[j]:
                pull += math.exp(-gamma * max(0, 1 + margin - s) * (s - (1 - margin)))
            else:
                push += math.exp(gamma * max(0, s + margin) * (s - margin))
        if pull and push:
            prices.append(math.log(1 + pull * push))
    return sum(prices) / len(prices)


@pytest.mark.parametrize(
    ("data", "margin", "gamma", "expected"),
    [
        ("T", 0.4, 80.0, 16.770552),
        ("T", 0.25, 256.0, 86.901894),
        ("COL", 0.4, 80.0, 55.786294),
        ("ORT", 0.4, 80.0, 3e-11),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, data: str, margin: float, gamma: float, expected: float
) -> None:
    loss, x = CircleLoss(margin, gamma), getattr(spec, data)
    assert loss(x, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss(x.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("margin", [0.0, 0.25, 0.4])
def test_equals_a_slow_loop(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    loss = CircleLoss(margin, 10.0)
    expected = slow(x, UNBALANCED, margin, 10.0)
    assert loss(x, UNBALANCED).item() == pytest.approx(expected, rel=1e-9)
    refs = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5])
    got = loss(x, UNBALANCED, None, refs, ref_labels).item()
    expected = slow(x, UNBALANCED, margin, 10.0, refs, ref_labels)
    assert got == pytest.approx(expected, rel=1e-9)


def test_equals_pytorch_metric_learning() -> None:
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(3))
    y = torch.arange(40) % 9
    theirs = PeerLoss(m=0.4, gamma=80)(x, y).item()
    assert CircleLoss()(x, y).item() == pytest.approx(theirs, rel=1e-5)


def test_weights_are_constants_in_the_gradient(spec: SimpleNamespace) -> None:
    """The gradient of the formula with its weights frozen, by central differences."""
    loss, x = CircleLoss(0.4, 4.0), spec.T.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x, spec.labels), x)
    pos = (spec.labels[:, None] == spec.labels) & ~torch.eye(6, dtype=torch.bool)
    neg = spec.labels[:, None] != spec.labels
    start = spec.T @ spec.T.T
    pull_weight, push_weight = (1.4 - start).clamp(min=0), (start + 0.4).clamp(min=0)

    def frozen(embeddings: Tensor) -> float:
        unit = embeddings / embeddings.norm(dim=1, keepdim=True)
        s = unit @ unit.T
        pull = (torch.exp(-4 * pull_weight * (s - 0.6)) * pos).sum(1)
        push = (torch.exp(4 * push_weight * (s - 0.4)) * neg).sum(1)
        return float(torch.log(1 + pull * push).mean())

    for i in range(6):
        for d in range(2):
            step = torch.zeros_like(spec.T)
            step[i, d] = 1e-6
            slope = (frozen(spec.T + step) - frozen(spec.T - step)) / 2e-6
            assert gradient[i, d].item() == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("wrong", [{"margin": -0.1}, {"margin": 1.5}, {"gamma": 0.0}])
def test_bad_values(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CircleLoss(**wrong)


def test_an_anchor_without_negatives_does_not_count(spec: SimpleNamespace) -> None:
    first, third = torch.tensor([0]), torch.tensor([2])
    alone = Pairs(first, torch.tensor([1]), first, third)
    beside = Pairs(torch.tensor([0, 2]), torch.tensor([1, 3]), first, third)
    assert CircleLoss()(spec.T, spec.labels, beside) == CircleLoss()(spec.T, spec.labels, alone) > 0

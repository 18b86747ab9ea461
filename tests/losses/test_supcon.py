import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from unseen.core.tuples import Pairs
from unseen.losses.supcon import SupconLoss

UNBALANCED = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1, 3, 3, 3])


def slow(
    x: Tensor, y: Tensor, temperature: float, refs: Tensor | None = None, ry: Tensor | None = None
) -> float:
    columns, column_labels = (x, y) if refs is None or ry is None else (refs, ry)
    prices = []
    for a in range(len(x)):
        logits, positives = {}, []
        for j in range(len(columns)):
            if refs is None and j == a:
                continue
            cos = x[a] @ columns[j] / (x[a].norm() * columns[j].norm())
            logits[j] = float(cos) / temperature
            if y[a] == column_labels[j]:
                positives.append(j)
        if not positives or len(positives) == len(logits):
            continue
        total = math.log(sum(math.exp(z) for z in logits.values()))
        prices.append(-sum(logits[p] - total for p in positives) / len(positives))
    return sum(prices) / len(prices)


@pytest.mark.parametrize(
    ("data", "temperature", "expected"),
    [
        ("T", 0.1, 0.636527),
        ("T", 0.07, 0.803234),
        ("COL", 0.1, math.log(5)),
        ("ORT", 0.1, 0.000182),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, data: str, temperature: float, expected: float
) -> None:
    loss, x = SupconLoss(temperature), getattr(spec, data)
    assert loss(x, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss(x.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_slow_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    assert SupconLoss(0.3)(x, UNBALANCED).item() == pytest.approx(
        slow(x, UNBALANCED, 0.3), rel=1e-9
    )
    refs = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5])
    got = SupconLoss(0.3)(x, UNBALANCED, None, refs, ref_labels).item()
    assert got == pytest.approx(slow(x, UNBALANCED, 0.3, refs, ref_labels), rel=1e-9)


def test_equals_pytorch_metric_learning() -> None:
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(3))
    y = torch.arange(40) % 9
    assert SupconLoss(0.1)(x, y).item() == pytest.approx(SupConLoss(0.1)(x, y).item(), rel=1e-5)


def test_low_temperatures_do_not_saturate() -> None:
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    double = SupconLoss(0.002)(x, UNBALANCED).item()
    assert math.isfinite(double)
    assert SupconLoss(0.002)(x.float(), UNBALANCED).item() == pytest.approx(double, rel=1e-5)


def test_gradient(spec: SimpleNamespace) -> None:
    x = spec.U.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda e: SupconLoss(0.2)(e, spec.labels), (x,))


def test_bad_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        SupconLoss(0.0)


def test_an_anchor_without_negatives_does_not_count(spec: SimpleNamespace) -> None:
    first, third = torch.tensor([0]), torch.tensor([2])
    alone = Pairs(first, torch.tensor([1]), first, third)
    beside = Pairs(torch.tensor([0, 2]), torch.tensor([1, 3]), first, third)
    assert SupconLoss()(spec.T, spec.labels, beside) == SupconLoss()(spec.T, spec.labels, alone) > 0

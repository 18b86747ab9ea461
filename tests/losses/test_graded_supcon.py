import math

import pytest
import torch
from torch import Tensor

from unseen.core.relevance import LabelSets, Related
from unseen.losses.graded_supcon import GradedSupconLoss
from unseen.losses.supcon import SupconLoss


def slow(x: Tensor, items: Related, temperature: float) -> float:
    same, different, grade = items.to()
    prices = []
    for a in range(len(x)):
        others = [j for j in range(len(x)) if same[a, j] or different[a, j]]
        grades = [float(grade[a, j]) for j in others]
        if not others or max(grades) == 0 or min(grades) == max(grades):
            continue
        logits = [float(x[a] @ x[j] / (x[a].norm() * x[j].norm())) / temperature for j in others]
        total = math.log(sum(math.exp(z) for z in logits))
        terms = [g * (z - total) for g, z in zip(grades, logits, strict=True)]
        prices.append(-sum(terms) / sum(grades))
    return sum(prices) / len(prices)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_slow_loop(seed: int, label_sets: LabelSets) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 6, generator=draw, dtype=torch.float64)
    items = label_sets.of(torch.randperm(12, generator=draw))
    assert GradedSupconLoss(0.3)(x, items).item() == pytest.approx(slow(x, items, 0.3), rel=1e-6)


def test_of_classes_is_supcon() -> None:
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(20) % 6
    assert GradedSupconLoss(0.2)(x, y).item() == pytest.approx(
        SupconLoss(0.2)(x, y).item(), rel=1e-9
    )


def test_gradient(label_sets: LabelSets) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    items = label_sets.of(torch.arange(6))
    assert torch.autograd.gradcheck(
        lambda e: GradedSupconLoss(0.2)(e, items), (x.requires_grad_(),)
    )


def test_bad_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        GradedSupconLoss(0.0)

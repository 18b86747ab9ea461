import math

import pytest
import torch
from torch import Tensor

from unseen.core.relevance import KnownPairs, Levels, Related
from unseen.losses import smooth_ap
from unseen.losses.hierarchical_smooth_ap import HierarchicalSmoothApLoss
from unseen.losses.smooth_ap import SmoothApLoss


def slow(x: Tensor, items: Related, temperature: float, alpha: float) -> float:
    same, different, grade = items.to()
    prices = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if same[i, j] or different[i, j]]
        grades = {j: float(grade[i, j]) for j in others}
        if not others or max(grades.values()) == 0 or len(set(grades.values())) == 1:
            continue
        cos = {j: float(x[i] @ x[j] / (x[i].norm() * x[j].norm())) for j in others}
        alike = list(grades.values())
        r = {j: g**alpha / alike.count(g) if g else 0.0 for j, g in grades.items()}
        total = 0.0
        for k in others:
            if not r[k]:
                continue
            above = {j: 1 / (1 + math.exp(-(cos[j] - cos[k]) / temperature)) for j in others}
            h_rank = r[k] + sum(min(r[j], r[k]) * above[j] for j in others if j != k)
            total += h_rank / (1 + sum(above[j] for j in others if j != k))
        prices.append(1 - total / sum(r.values()))
    return sum(prices) / len(prices)


@pytest.mark.parametrize("seed", range(2))
def test_equals_a_slow_loop(
    seed: int, levels: Levels, known: KnownPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", 40)  # several blocks
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=draw, dtype=torch.float64)
    for relevance in (levels, known):
        items = relevance.of(torch.randperm(12, generator=draw))
        result = HierarchicalSmoothApLoss(0.1, 1.5)(x, items).item()
        assert result == pytest.approx(slow(x, items, 0.1, 1.5), rel=1e-6)


def test_of_classes_is_smooth_ap() -> None:
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(20) % 6
    result = HierarchicalSmoothApLoss(0.1)(x, y).item()
    assert result == pytest.approx(SmoothApLoss(0.1)(x, y).item(), rel=1e-9)


def test_gradient(levels: Levels) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    items = levels.of(torch.arange(6))
    loss = HierarchicalSmoothApLoss(0.2)
    assert torch.autograd.gradcheck(lambda e: loss(e, items), (x.requires_grad_(),))


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="alpha"):
        HierarchicalSmoothApLoss(alpha=0.0)

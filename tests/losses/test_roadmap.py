import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unseen.losses import smooth_ap
from unseen.losses.roadmap import RoadmapLoss

LABELS = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1, 3, 3, 3])


def slow(
    x: Tensor, y: Tensor, temperature: float, rho: float, delta: float, margins: tuple[float, float]
) -> tuple[float, float]:
    """The bound of 1 - AP and the calibration, by loops."""

    def step(t: float) -> float:
        if t <= 0:
            return 1 / (1 + math.exp(min(700.0, -t / temperature)))
        if t <= delta:
            return 1 / (1 + math.exp(-t / temperature)) + 0.5
        return rho * (t - delta) + step(delta)

    precisions, near, far = [], [], []
    for i in range(len(x)):
        s = [float(x[i] @ c / (x[i].norm() * c.norm())) for c in x]
        positives = [j for j in range(len(x)) if j != i and y[j] == y[i]]
        negatives = [j for j in range(len(x)) if y[j] != y[i]]
        near += [margins[0] - s[p] for p in positives if s[p] < margins[0]]
        far += [s[n] - margins[1] for n in negatives if s[n] > margins[1]]
        total = 0.0
        for p in positives:
            rank = sum(s[q] >= s[p] for q in positives)
            total += rank / (rank + sum(step(s[n] - s[p]) for n in negatives))
        precisions += [total / len(positives)] if positives and negatives else []
    calibration = sum(near) / max(1, len(near)) + sum(far) / max(1, len(far))
    return 1 - sum(precisions) / max(1, len(precisions)), calibration


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [1, 40, 1 << 18])
def test_equals_a_slow_loop(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", block)
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    loss = RoadmapLoss(0.1, 7.0, 0.2, 0.8, 0.1, calibration=0.3)
    bound, calibration = slow(x, LABELS, 0.1, 7.0, 0.2, (0.8, 0.1))
    assert loss(x, LABELS).item() == pytest.approx(bound + 0.3 * calibration, rel=1e-9)


def average_precision(sim: Tensor, y: Tensor) -> float:
    values = []
    for i in range(len(y)):
        order = [j for j in sim[i].argsort(descending=True).tolist() if j != i]
        hits = [rank for rank, j in enumerate(order, start=1) if y[j] == y[i]]
        if hits and len(hits) < len(order):
            values.append(sum(k / rank for k, rank in enumerate(hits, start=1)) / len(hits))
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(20))
def test_is_an_upper_bound_of_one_minus_the_average_precision(seed: int) -> None:
    """The paper's theorem, which Smooth-AP does not keep."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit = x / x.norm(dim=1, keepdim=True)
    truth = 1 - average_precision(unit @ unit.T, LABELS)
    assert RoadmapLoss(calibration=0.0)(x, LABELS).item() >= truth


def test_known_values(spec: SimpleNamespace) -> None:
    """Collapsed: one positive behind four halves; similarity 1 is 0.4 above the negative margin.
    Orthogonal classes: every step is sig(-1 / 0.01), nothing to calibrate."""
    assert RoadmapLoss()(spec.COL, spec.labels).item() == pytest.approx(1 - 1 / 3 + 0.4, abs=1e-6)
    assert RoadmapLoss()(spec.ORT, spec.labels).item() == pytest.approx(0, abs=1e-6)


def test_the_step_is_continuous_at_delta_and_keeps_pushing() -> None:
    """The authors' 1.44 would fall by 0.053 there; far beyond, the slope is still rho."""
    height, slope = RoadmapLoss()._step(torch.tensor([0.05 - 1e-9, 0.05 + 1e-9, 1.0]).double())
    assert height[0].item() == pytest.approx(1.4933, abs=1e-4)
    assert height[1].item() == pytest.approx(height[0].item(), abs=1e-6)
    assert slope[2].item() == 100


def test_gradcheck() -> None:
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    loss = RoadmapLoss(0.2, 5.0, 0.3, 0.7, 0.2)
    assert torch.autograd.gradcheck(lambda x: loss(x, LABELS[:9]), x.requires_grad_())


@pytest.mark.parametrize("bad", [{"temperature": 0}, {"rho": -1}, {"delta": -0.1}])
def test_bad_values(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        RoadmapLoss(**bad)

"""MCML against loops; its gradient against automatic differentiation."""

import math

import pytest
import torch
from torch import Tensor

from unseen.classical.mcml import Mcml
from unseen.core.tuples import relations


def slow(metric: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """The objective, differentiable in the metric."""
    total = metric.new_zeros(())
    num = len(x)
    for i in range(num):
        gaps = x[i] - x
        dist = (gaps @ metric * gaps).sum(dim=1)
        others = [k for k in range(num) if k != i]
        own = [j for j in others if labels[j] == labels[i]]
        norm = torch.logsumexp(-dist[others], dim=0)
        for j in own:
            total = total - (-dist[j] - norm) / len(own)
    return total / num


def wanted(labels: Tensor) -> Tensor:
    same = relations(labels)[0].double()
    return same / same.sum(dim=1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("lone", [False, True])
def test_cost_and_gradient_equal_the_loop(lone: bool, stretched: tuple[Tensor, Tensor]) -> None:
    features, labels = (part[::6].clone() for part in stretched)
    if lone:
        labels[0] = 9
    root = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    metric = (root @ root.T).requires_grad_()
    expected = slow(metric, features, labels)
    expected.backward()
    cost, gradient = Mcml().cost(metric.detach(), features, wanted(labels))
    assert cost == pytest.approx(expected.item())
    assert metric.grad is not None
    assert torch.allclose(gradient, (metric.grad + metric.grad.T) / 2, atol=1e-9)


def test_the_objective_falls_and_the_metric_is_semidefinite(
    stretched: tuple[Tensor, Tensor],
) -> None:
    features, labels = stretched
    method = Mcml()
    learned = method.fit(features, labels).components
    metric = learned.T @ learned
    before, _ = method.cost(torch.eye(5, dtype=torch.float64), features, wanted(labels))
    after, _ = method.cost(metric, features, wanted(labels))
    assert after < before - 0.1
    assert torch.linalg.eigvalsh(metric).min() > -1e-9


def test_no_items_of_one_class_leave_the_identity() -> None:
    features = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    components = Mcml().fit(features, torch.arange(2)).components
    assert math.isclose((components.T @ components).trace().item(), 2.0)


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="max_iterations"):
        Mcml(0)

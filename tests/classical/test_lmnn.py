"""LMNN against loops over every target and impostor."""

import pytest
import torch
from torch import Tensor

from unseen.classical.lmnn import Lmnn
from unseen.core.tuples import relations


def slow(x: Tensor, moved: Tensor, labels: Tensor, neighbors: int, push: float) -> float:
    """The objective with targets by the distances of x and costs by those of moved."""
    total = 0.0
    num = len(labels)
    for i in range(num):
        own = [j for j in range(num) if j != i and labels[j] == labels[i]]
        targets = sorted(own, key=lambda j: float((x[i] - x[j]).square().sum()))[:neighbors]
        for j in targets:
            near = float((moved[i] - moved[j]).square().sum())
            total += (1 - push) * near
            for other in range(num):
                if labels[other] != labels[i]:
                    far = float((moved[i] - moved[other]).square().sum())
                    total += push * max(0.0, 1 + near - far)
    return total / num


def cost_of(metric: Lmnn, components: Tensor, features: Tensor, labels: Tensor) -> float:
    targets = metric.targets(features, labels)
    return metric.cost(components, features, targets, relations(labels)[1]).item()


@pytest.mark.parametrize("neighbors", [1, 3, 30])
def test_equals_the_loop(neighbors: int, stretched: tuple[Tensor, Tensor]) -> None:
    features, labels = (part[::2] for part in stretched)
    metric = Lmnn(neighbors, push=0.3)
    components = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = slow(features, features @ components.T, labels, neighbors, 0.3)
    assert cost_of(metric, components, features, labels) == pytest.approx(expected)


def test_the_objective_falls(stretched: tuple[Tensor, Tensor]) -> None:
    features, labels = stretched
    metric = Lmnn()
    learned = metric.fit(features, labels).components
    start = torch.eye(5, dtype=torch.float64)
    assert cost_of(metric, learned, features, labels) < 0.5 * cost_of(
        metric, start, features, labels
    )


@pytest.mark.parametrize(
    "wrong", [{"neighbors": 0}, {"push": 0.0}, {"push": 1.0}, {"max_iterations": 0}]
)
def test_bad_values(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Lmnn(**wrong)  # type: ignore[arg-type]

"""NCA's objective rises from its start."""

import math

import pytest
import torch
from torch import Tensor

from unseen.classical.nca import Nca


def slow(x: list[list[float]], labels: list[int]) -> float:
    """The sum over items of the chance that a random neighbour is of the same class."""
    total = 0.0
    for i, a in enumerate(x):
        weights = [0.0 if j == i else math.exp(-(math.dist(a, b) ** 2)) for j, b in enumerate(x)]
        own = sum(w for w, label in zip(weights, labels, strict=True) if label == labels[i])
        total += own / sum(weights)
    return total


def test_the_objective_rises(stretched: tuple[Tensor, Tensor]) -> None:
    features, labels = stretched
    learned = Nca().fit(features, labels).transform(features)
    before = slow(features.tolist(), labels.tolist())
    assert slow(learned.tolist(), labels.tolist()) > before + 5


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="max_iterations"):
        Nca(0)


def test_separated_classes_stay_separated() -> None:
    features = torch.tensor([[0.0, 0], [0, 0.1], [9, 0], [9, 0.1]], dtype=torch.float64)
    learned = Nca().fit(features, torch.tensor([0, 0, 1, 1])).transform(features)
    assert slow(learned.tolist(), [0, 0, 1, 1]) == pytest.approx(4.0, abs=1e-6)

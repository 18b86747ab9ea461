import pytest
import torch
from torch import Tensor

from unseen.core.relevance import KnownPairs, LabelSets, Related
from unseen.losses.generalized_contrastive import GeneralizedContrastiveLoss


def slow(x: Tensor, items: Related, margin: float) -> float:
    same, different, grade = items.to()
    costs = []
    for i in range(len(x)):
        for j in range(len(x)):
            if not (same[i, j] or different[i, j]):
                continue
            d = float((x[i] / x[i].norm() - x[j] / x[j].norm()).norm())
            g = float(grade[i, j])
            costs.append(g * d**2 / 2 + (1 - g) * max(0.0, margin - d) ** 2 / 2)
    return sum(costs) / len(costs)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_slow_loop(seed: int, label_sets: LabelSets, known: KnownPairs) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=draw, dtype=torch.float64)
    for relevance in (label_sets, known):
        items = relevance.of(torch.randperm(12, generator=draw))
        result = GeneralizedContrastiveLoss(1.2)(x, items).item()
        assert result == pytest.approx(slow(x, items, 1.2), rel=1e-6)


def test_by_hand() -> None:
    """Two items at a right angle, distance sqrt(2): half the same costs half of each."""
    x = torch.eye(2, dtype=torch.float64)
    half = LabelSets(torch.tensor([[0, 1], [0, -1]]).numpy()).of(torch.arange(2))
    assert GeneralizedContrastiveLoss(2.0)(x, half).item() == pytest.approx(
        0.5 * 2 / 2 + 0.5 * (2 - 2**0.5) ** 2 / 2
    )


def test_nobody_is_a_pair_with_himself(label_sets: LabelSets) -> None:
    """The rho switch of miners names an anchor as its own positive."""
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    switched = tuple(torch.tensor(column) for column in ([0, 0], [0, 1], [2, 2]))
    for labels in (label_sets.of(torch.arange(4)), torch.tensor([0, 0, 1, 1])):
        once = GeneralizedContrastiveLoss()(x, labels, tuple(column[1:] for column in switched))
        torch.testing.assert_close(GeneralizedContrastiveLoss()(x, labels, switched), once)


def test_gradient(label_sets: LabelSets) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    items = label_sets.of(torch.arange(6))
    loss = GeneralizedContrastiveLoss(1.2)
    assert torch.autograd.gradcheck(lambda e: loss(e, items), (x.requires_grad_(),))


def test_bad_margin() -> None:
    with pytest.raises(ValueError, match="margin"):
        GeneralizedContrastiveLoss(0.0)

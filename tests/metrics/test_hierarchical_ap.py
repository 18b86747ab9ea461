import pytest
import torch

from unseen.core.relevance import Related
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.hierarchical_ap import HierarchicalAp
from unseen.metrics.map import Map


def slow(order: list[float], alpha: float) -> float:
    """order: the grades of the ranking, nearest first."""
    relevance = [0 if g == 0 else g**alpha / order.count(g) for g in order]
    total = 0.0
    for k, own in enumerate(relevance):
        if own > 0:
            total += (own + sum(min(own, other) for other in relevance[:k])) / (k + 1)
    return total / sum(relevance)


@pytest.mark.parametrize("alpha", [1.0, 2.5])
def test_equals_a_slow_loop(graded: tuple[torch.Tensor, Related], alpha: float) -> None:
    x, items = graded
    result = HierarchicalAp(alpha)(retrieve(x, items, 0, grades=True))
    unit = torch.nn.functional.normalize(x.double())
    grades = items.to().grade.double()
    checked = 0
    for q in torch.nonzero(result.isfinite())[:, 0].tolist():
        others = [j for j in range(len(x)) if j != q]
        others.sort(key=lambda j: -float(unit[q] @ unit[j]))
        assert float(result[q]) == pytest.approx(slow([float(grades[q, j]) for j in others], alpha))
        checked += 1
    assert checked > 15


def test_of_classes_is_the_mean_average_precision() -> None:
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    y = torch.arange(30) % 7
    result = retrieve(x, y, 0, ranks=True, grades=True)
    torch.testing.assert_close(HierarchicalAp()(result), Map()(result))


def test_by_hand() -> None:
    """Two levels: an item of the class is worth 1, the one of its category 1/2."""
    assert slow([1.0, 0.5, 0.0], 1) == 1.0
    assert slow([0.5, 1.0], 1) == pytest.approx((0.5 + (1 + 0.5) / 2) / 1.5)


def test_where_nobody_has_a_relative() -> None:
    result = retrieve(torch.randn(4, 3), torch.arange(4), 0, grades=True)
    assert HierarchicalAp()(result).isnan().all()


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="alpha must be"):
        HierarchicalAp(0)

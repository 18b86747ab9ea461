import pytest
import torch

from unseen.core.relevance import Related
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.average_set_intersection import AverageSetIntersection


def slow(order: list[float]) -> float:
    """order: the grades of the ranking, nearest first."""
    best = sorted(order, reverse=True)
    related = sum(grade > 0 for grade in order)
    total = 0.0
    for k in range(1, related + 1):
        left, shared = list(best[:k]), 0
        for grade in order[:k]:
            if grade in left:
                left.remove(grade)
                shared += 1
        total += shared / k
    return total / related


def test_equals_a_slow_loop(graded: tuple[torch.Tensor, Related]) -> None:
    x, items = graded
    result = AverageSetIntersection()(retrieve(x, items, 0, grades=True))
    unit = torch.nn.functional.normalize(x.double())
    grades = items.to().grade.double()
    finite = torch.nonzero(result.isfinite())[:, 0].tolist()
    assert len(finite) > 15
    for q in finite:
        others = [j for j in range(len(x)) if j != q]
        others.sort(key=lambda j: -float(unit[q] @ unit[j]))
        assert float(result[q]) == pytest.approx(slow([float(grades[q, j]) for j in others]))


def test_by_hand() -> None:
    assert slow([1.0, 0.5, 0.0]) == 1.0
    assert slow([0.5, 1.0, 0.0]) == pytest.approx((0 + 1) / 2)

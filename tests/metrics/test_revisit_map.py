import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.revisit_map import RevisitMap

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    hits = [r for r, right in enumerate(ranking[: sum(ranking) + 1], start=1) if right]
    return sum((k + 1) / r for k, r in enumerate(hits)) / (sum(ranking) + 1)


def test_small_case(line: Neighbors) -> None:
    assert RevisitMap()(line).mean() == pytest.approx(0.3426, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = RevisitMap()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_perfect_ranking_scores_less_than_one() -> None:
    y = torch.arange(4).repeat_interleave(5)
    perfect = RevisitMap()(retrieve(torch.eye(4)[y], y, 6))
    assert perfect.mean() == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("items", "classes", "ceiling"), [(5924, 100, 0.983), (8131, 98, 0.988), (60502, 11316, 0.813)]
)
def test_published_ceilings(items: int, classes: int, ceiling: float) -> None:
    """A perfect ranking gives (n - 1) / n per query, so (N - C) / N on average over queries."""
    sizes = torch.bincount(torch.arange(items) % classes)
    relevant = (sizes - 1).repeat_interleave(sizes)[:, None]
    matches = torch.arange(int(sizes.max())) < relevant
    perfect = Neighbors(matches.long(), matches.double(), matches, relevant[:, 0])
    assert RevisitMap()(perfect).mean() == pytest.approx(ceiling, abs=5e-4)

import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.revisit_hit_rate import RevisitHitRate

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    size = sum(ranking) + 1
    return sum(ranking[:size]) / size


def test_small_case(line: Neighbors) -> None:
    assert RevisitHitRate()(line).mean() == pytest.approx(0.4444, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = RevisitHitRate()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_perfect_ranking_scores_less_than_one() -> None:
    y = torch.arange(4).repeat_interleave(5)
    assert RevisitHitRate()(retrieve(torch.eye(4)[y], y, 6)).mean() == pytest.approx(4 / 5)

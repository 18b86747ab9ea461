import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.r_precision import RPrecision

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    return sum(ranking[: sum(ranking)]) / sum(ranking)


def test_small_case(line: Neighbors) -> None:
    assert RPrecision()(line).mean() == pytest.approx(0.3333, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = RPrecision()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_perfect_ranking_scores_one() -> None:
    y = torch.arange(4).repeat_interleave(5)
    assert RPrecision()(retrieve(torch.eye(4)[y], y, 5)).tolist() == [1.0] * 20


def test_looks_as_deep_as_there_are_relevant() -> None:
    assert RPrecision().depth(17) == 17

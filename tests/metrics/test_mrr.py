import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.mrr import Mrr

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    return 1 / (ranking.index(True) + 1)


def test_small_case(line: Neighbors) -> None:
    assert Mrr()(line).mean() == pytest.approx((1 + 1 + 1 / 4 + 1 / 4 + 1 / 2 + 1) / 6, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = Mrr()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_nothing_relevant_anywhere() -> None:
    result = Mrr()(retrieve(torch.randn(4, 3), torch.arange(4), 2, ranks=True))
    assert result.isnan().all()

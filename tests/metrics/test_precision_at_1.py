import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.precision_at_1 import PrecisionAt1

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    return float(ranking[0])


def test_small_case(line: Neighbors) -> None:
    assert PrecisionAt1()(line).mean() == pytest.approx(0.5, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = PrecisionAt1()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_looks_at_one_neighbor() -> None:
    assert PrecisionAt1().depth(100) == 1

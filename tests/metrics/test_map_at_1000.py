import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.map_at_1000 import MapAt1000

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    hits = [r for r, right in enumerate(ranking[:1000], start=1) if right]
    return sum((k + 1) / r for k, r in enumerate(hits)) / (sum(ranking) + 1)


def test_small_case(line: Neighbors) -> None:
    assert MapAt1000()(line).mean() == pytest.approx(0.6222 * 2 / 3, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = MapAt1000()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_stops_at_1000() -> None:
    """One right item at rank 1000 counts, at rank 1001 it does not."""
    for rank, expected in ((1000, 1 / 1000 / 2), (1001, 0.0)):
        matches = torch.zeros(1, 1100, dtype=torch.bool)
        matches[0, rank - 1] = True
        result = Neighbors(matches.long(), matches.double(), matches, torch.tensor([1]))
        assert float(MapAt1000()(result)) == pytest.approx(expected)
    assert MapAt1000().depth(3) == 1000

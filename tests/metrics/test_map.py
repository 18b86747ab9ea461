import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.map import Map

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    hits = [r for r, right in enumerate(ranking, start=1) if right]
    return sum((k + 1) / r for k, r in enumerate(hits)) / sum(ranking)


def test_small_case(line: Neighbors) -> None:
    assert Map()(line).mean() == pytest.approx(0.6222, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = Map()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_needs_ranks(line: Neighbors) -> None:
    assert Map.needs_ranks
    lists_only = Neighbors(line.indices, line.similarities, line.matches, line.num_relevant)
    with pytest.raises(ValueError, match="ranks=True"):
        Map()(lists_only)

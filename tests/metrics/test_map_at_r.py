import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.map_at_r import MapAtR

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool]) -> float:
    hits = [r for r, right in enumerate(ranking[: sum(ranking)], start=1) if right]
    return sum((k + 1) / r for k, r in enumerate(hits)) / sum(ranking)


def test_small_case(line: Neighbors) -> None:
    assert MapAtR()(line).mean() == pytest.approx(0.2917, abs=5e-5)


def test_equals_sorting_everything(messy: Messy) -> None:
    for x, y, rankings in messy:
        result = MapAtR()(retrieve(x, y, len(x), ranks=True))
        expected = [reference(r) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_order_inside_the_first_r_matters() -> None:
    """Query at 0, right items at 1 and 2: a wrong one before, between or after them."""
    y = torch.tensor([0, 0, 0, 1])
    scores = []
    for place in (0.5, 1.5, 2.5):
        x = torch.tensor([0.0, 1.0, 2.0, place])[:, None]
        scores.append(float(MapAtR()(retrieve(x, y, 3, normalize=False))[0]))
    assert scores == pytest.approx([0.25, 0.5, 1.0])


def test_looks_as_deep_as_there_are_relevant() -> None:
    assert MapAtR().depth(17) == 17

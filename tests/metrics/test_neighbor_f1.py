import math

import pytest
import torch
from torch import Tensor

from unseen.evaluation.retrieve import retrieve
from unseen.metrics.neighbor_f1 import NeighborF1
from unseen.metrics.r_precision import RPrecision

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool], k: int) -> float:
    right = 0
    for is_right in ranking[:k]:
        right += is_right
    precision, recall = right / k, right / ranking.count(True)
    return 2 * precision * recall / (precision + recall) if right else 0.0


@pytest.mark.parametrize("k", [1, 2, 4, 7])
def test_equals_sorting_everything(messy: Messy, k: int) -> None:
    for x, y, rankings in messy:
        if k < len(x):
            result = NeighborF1(k)(retrieve(x, y, k))
            expected = [reference(r, k) if any(r) else math.nan for r in rankings]
            torch.testing.assert_close(
                result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
            )


def test_at_the_size_of_the_class_it_is_r_precision() -> None:
    """Precision and recall are then the same number."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 4, generator=generator), torch.arange(6).repeat_interleave(5)
    neighbors = retrieve(x, y, 4, ranks=True)
    torch.testing.assert_close(NeighborF1(4)(neighbors), RPrecision()(neighbors))


def test_bad_k() -> None:
    with pytest.raises(ValueError, match="k must be a whole number, at least 1, got 0"):
        NeighborF1(0)

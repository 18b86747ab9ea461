import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall

Messy = list[tuple[Tensor, Tensor, list[list[bool]]]]


def reference(ranking: list[bool], k: int) -> float:
    return float(any(ranking[:k]))


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.6667), (3, 0.6667), (4, 1.0)])
def test_small_case(line: Neighbors, k: int, expected: float) -> None:
    assert Recall(k)(line).mean() == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_equals_sorting_everything(messy: Messy, k: int) -> None:
    for x, y, rankings in messy:
        result = Recall(k)(retrieve(x, y, k))
        expected = [reference(r, k) if any(r) else math.nan for r in rankings]
        torch.testing.assert_close(
            result, torch.tensor(expected, dtype=torch.float64), equal_nan=True
        )


def test_chance_on_random_embeddings() -> None:
    """CUB: 5,924 test images of 100 classes: 0.98 % of nearest neighbours are right by chance."""
    sizes = torch.full((100,), 59) + (torch.arange(100) < 24)
    y = torch.arange(100).repeat_interleave(sizes)
    chance = float((sizes * (sizes - 1)).sum() / (len(y) * (len(y) - 1)))
    assert chance == pytest.approx(0.0098, abs=5e-5)
    x = torch.randn(len(y), 32, generator=torch.Generator().manual_seed(0))
    assert Recall(1)(retrieve(x, y, 1)).mean() == pytest.approx(chance, abs=0.004)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_bad_k(k: int) -> None:
    with pytest.raises(ValueError, match="k must be"):
        Recall(k)

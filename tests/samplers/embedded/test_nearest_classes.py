"""The nearest other classes equal a slow search over all pairs, in any block size."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.samplers.embedded import nearest_classes as module
from unseen.samplers.embedded.nearest_classes import nearest_classes

SIZES = np.array([3, 1, 4, 2, 5, 2])


def slow(rows: Tensor, seed: int, raw: bool) -> list[int]:
    """The other classes by their nearest member, one pair at a time."""
    owner = [c for c, size in enumerate(SIZES) for _ in range(size)]
    best: dict[int, float] = {}
    for item, label in enumerate(owner):
        if label != owner[seed]:
            x, y = rows[seed].tolist(), rows[item].tolist()
            far = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
            lengths = math.hypot(*x) * math.hypot(*y)
            near = -far if raw else sum(a * b for a, b in zip(x, y, strict=True)) / lengths
            best[label] = max(near, best.get(label, -np.inf))
    return sorted(best, key=lambda label: -best[label])


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("entries", [1, 40, 2**24])
def test_equals_a_slow_search(raw: bool, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES", entries)
    rows = torch.randn(17, 3, generator=torch.Generator().manual_seed(2))
    seeds: IntArray = np.array([16, 0, 3, 9, 9, 5])
    result = nearest_classes(rows, SIZES, seeds, 5, not raw)
    assert result.tolist() == [slow(rows, int(seed), raw) for seed in seeds]
    fewer = nearest_classes(rows, SIZES, seeds, 2, not raw)
    assert fewer.tolist() == result[:, :2].tolist()


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("noise", [1.0, 1e-7, 0.0])  # near-equals, and copies in other classes
def test_integers_change_nothing(
    integers: bool, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.neighbors.select.SMALL", 0)
    monkeypatch.setattr("unseen.neighbors.certified._faster", lambda size, dtype: integers)
    draw = torch.Generator().manual_seed(3)
    sizes = 1 + np.arange(120) % 7
    owner = np.repeat(np.arange(120), sizes)
    x = torch.randn(60, 24, generator=draw)[torch.randint(60, (len(owner),), generator=draw)]
    x += noise * torch.randn(len(owner), 24, generator=draw)
    seeds: IntArray = np.arange(0, len(owner), 11)
    unit = (x.double() / x.double().norm(dim=1, keepdim=True)).numpy()
    result = nearest_classes(x, sizes, seeds, 20)
    for seed, listed in zip(seeds, result.tolist(), strict=True):
        near = np.round(unit @ unit[seed] * 2**20)
        best = [(-near[owner == c].max(), c) for c in range(120) if c != owner[seed]]
        assert listed == [c for _, c in sorted(best)[:20]]


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_collapsed_network_has_neighbors_still(value: float) -> None:
    rows, sizes = torch.full((60, 8), value), np.full(12, 5)
    result = nearest_classes(rows, sizes, np.array([0, 7]), 3, normalize=False)
    assert result.tolist() == [[1, 2, 3], [0, 2, 3]]

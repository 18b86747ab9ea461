"""The nearest other classes equal a slow search over all pairs, in any block size."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.contracts import IntArray
from unseen.geometry import dot, squared_distance
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
            near = -far if raw else sum(a * b for a, b in zip(x, y, strict=True))
            best[label] = max(near, best.get(label, -np.inf))
    return sorted(best, key=lambda label: -best[label])


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("entries", [1, 40, 2**24])
def test_equals_a_slow_search(raw: bool, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES", entries)
    rows = torch.randn(17, 3, generator=torch.Generator().manual_seed(2))
    seeds: IntArray = np.array([16, 0, 3, 9, 9, 5])
    measure = (lambda x, y: -squared_distance(x, y)) if raw else dot
    found = nearest_classes(rows, SIZES, seeds, 5, measure)
    assert found.tolist() == [slow(rows, int(seed), raw) for seed in seeds]
    fewer = nearest_classes(rows, SIZES, seeds, 2, measure)
    assert fewer.tolist() == found[:, :2].tolist()

"""Frechet matching: the distance against scipy's matrix root, its properties, and the choice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor

from unseen.samplers.frechet_matching import FrechetMatchingSampler, frechet


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_pairs_on_a_line() -> None:
    """{-1, 1} and {1, 5}: 9 + (sqrt 2 - sqrt 8)^2 = 11."""
    first, second = torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([[1.0], [5.0]]).double()
    assert float(frechet(first[None], second)) == pytest.approx(11.0)
    assert float(frechet(second[None], first)) == pytest.approx(11.0)


@pytest.mark.parametrize("size", [30, 6], ids=["full rank", "fewer items than dimensions"])
def test_equals_the_textbook_formula(size: int) -> None:
    sets = random(4, size, 8) + 0.5
    pool = random(50, 8, seed=1) @ random(8, 8, seed=2)
    target = np.cov(pool.numpy(), rowvar=False)
    for result, rows in zip(frechet(sets, pool), sets.numpy(), strict=True):
        own = np.cov(rows, rowvar=False)
        root = np.real(sqrtm(target))
        cross = np.real(sqrtm(root @ own @ root + 1e-14 * np.eye(8)))
        gap = ((rows.mean(0) - pool.numpy().mean(0)) ** 2).sum()
        slow = gap + np.trace(own) + np.trace(target) - 2 * np.trace(cross)
        assert float(result) == pytest.approx(slow, rel=1e-5)


def test_zero_to_itself_symmetric_and_blind_to_rotation() -> None:
    one, two = random(20, 5), random(20, 5, seed=1) * 2 + 1
    turn = torch.linalg.qr(random(5, 5, seed=2)).Q
    assert float(frechet(one[None], one)) == pytest.approx(0.0, abs=1e-9)
    there, back = frechet(one[None], two), frechet(two[None], one)
    torch.testing.assert_close(there, back, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(frechet((one @ turn)[None], two @ turn), there)


def test_the_batch_is_the_cheapest_of_the_candidates(
    classes_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = classes_of([6] * 12)
    rows = random(72, 16).float()
    sampler = FrechetMatchingSampler(*data, 12, pool_size=48)
    sampler.fill(rows)
    seen: list[tuple[Tensor, Tensor]] = []
    costs = FrechetMatchingSampler.costs

    def spy(self: FrechetMatchingSampler, pool: Tensor, candidates: Tensor) -> Tensor:
        seen.append((pool, candidates))
        return costs(self, pool, candidates)

    monkeypatch.setattr(FrechetMatchingSampler, "costs", spy)
    place = {item: i for i, item in enumerate(data[0].tolist())}
    unit = torch.nn.functional.normalize(rows.double(), dim=1)
    batches = list(sampler)
    for batch, (pool, candidates) in zip(batches, seen, strict=True):
        assert candidates.shape == (10, 12)
        own = frechet(unit[[place[p] for p in batch]][None], pool.double())
        every = frechet(pool.double()[candidates], pool.double())
        assert float(own) == pytest.approx(float(every.min()), abs=1e-6)


def test_a_collapsed_bank_still_gives_batches(classes_of: Callable[..., Any]) -> None:
    sampler = FrechetMatchingSampler(*classes_of([6] * 8), 8, pool_size=24)
    sampler.fill(torch.zeros(48, 4))
    assert all(len(set(batch)) == 8 for batch in sampler)

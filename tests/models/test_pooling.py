"""Pooling against loops, and GeM between its two ends."""

import math

import pytest
import torch

from unseen.models.pooling import POOLINGS, GeneralizedMean, create_pooling


def by_hand(values, name):
    mean, largest = sum(values) / len(values), max(values)
    if name == "gem":
        return (sum(max(v, 1e-6) ** 3 for v in values) / len(values)) ** (1 / 3)
    return {"avg": mean, "max": largest, "avg+max": mean + largest}[name]


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("seed", range(3))
def test_reference(name, seed):
    maps = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed)).double()
    pooled = create_pooling(name).double()(maps)
    expected = [[by_hand(maps[n, c].flatten().tolist(), name) for c in range(3)] for n in range(2)]
    torch.testing.assert_close(pooled, torch.tensor(expected, dtype=torch.float64))


def test_gem_runs_from_mean_to_maximum():
    maps = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    values = [GeneralizedMean(p)(maps).item() for p in (1, 3, 50, 5000)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(maps.mean().item(), abs=1e-6)
    assert values[3] == pytest.approx(maps.max().item(), rel=1e-3)
    # a mean of 16 values at power 50 lies below the largest by 16^(1/50) at most
    assert maps.max().item() * 16 ** (-1 / 50) <= values[2] <= maps.max().item()


def test_gem_learns_p_and_survives_half_precision():
    pool = GeneralizedMean()
    maps = torch.rand(2, 3, 4, 4, dtype=torch.bfloat16) * 100
    pooled = pool(maps)
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, pool(maps.float()))
    pooled.sum().backward()
    assert math.isfinite(pool.p.grad.item())
    assert pool.p.grad.item() != 0


def test_gem_gradient():
    maps = torch.rand(1, 2, 3, 3, dtype=torch.float64) + 0.1
    pool = GeneralizedMean().double()
    assert torch.autograd.gradcheck(pool, (maps.requires_grad_(),))


def test_bad_values():
    with pytest.raises(
        ValueError, match=r"pooling must be one of avg, max, avg\+max, gem, got 'sum'"
    ):
        create_pooling("sum")
    with pytest.raises(ValueError, match="p must be positive"):
        GeneralizedMean(0)

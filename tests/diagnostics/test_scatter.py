"""The scatter ratio against loops, and at its two ends."""

import math

import pytest
import torch

from unseen.diagnostics.scatter import Scatter


def test_against_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    image = torch.randint(0, 6, (30,), generator=generator)
    unit = [row / row.norm() for row in x]
    within = []
    for p in image.unique():
        rows = [u for u, q in zip(unit, image, strict=True) if q == p]
        mean = sum(rows) / len(rows)
        within.append(sum(float(((r - mean) ** 2).sum()) for r in rows) / len(rows))
    mean = sum(unit) / 30
    total = sum(float(((u - mean) ** 2).sum()) for u in unit) / 30
    result = Scatter()(x, image)
    assert result["within"] == pytest.approx(sum(within) / len(within))
    assert result["total"] == pytest.approx(total)
    assert result["ratio"] == pytest.approx(sum(within) / len(within) / total)


def test_places_that_all_say_the_same_and_images_that_all_look_alike() -> None:
    same = torch.eye(3).repeat_interleave(4, dim=0)
    assert Scatter()(same, torch.arange(3).repeat_interleave(4))["ratio"] == pytest.approx(0)
    assert Scatter()(same, torch.arange(4).repeat(3))["ratio"] == pytest.approx(1)
    assert math.isnan(Scatter()(torch.ones(4, 2), torch.arange(4))["ratio"])

"""Kernel features: distances by the kernel, and the image that no linear metric can solve."""

import pytest
import torch
from torch import Tensor

from unseen import evaluate
from unseen.classical.kernel.features import KernelFeatures
from unseen.core import registry


def exclusive_or(num: int = 40) -> tuple[Tensor, Tensor]:
    """Four clusters at the corners of a square; opposite corners are one class."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]], dtype=torch.float64)
    place = torch.arange(4).repeat_interleave(num)
    noise = 0.1 * torch.randn(4 * num, 2, generator=generator, dtype=torch.float64)
    return corners[place] + noise, place // 2


def test_all_components_keep_the_distances_of_the_kernel() -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = KernelFeatures(size=11, width=0.5, landmarks=12).fit(x).transform(x)
    for i in range(12):
        for j in range(12):
            kernel = torch.exp(-0.5 * (x[i] - x[j]).square().sum())
            assert (moved[i] - moved[j]).square().sum().item() == pytest.approx(
                (2 - 2 * kernel).item(), abs=1e-6
            )


@pytest.mark.parametrize("name", ["whitening", "rca", "lmnn", "mcml", "nca"])
def test_no_linear_metric_makes_one_cluster_of_opposite_corners(name: str) -> None:
    """R-precision needs all items of a class together, which no linear map can do here. Of the
    methods those that look at whole classes can on kernel features; lmnn and nca are content with
    near neighbours."""
    features, labels = exclusive_or()
    kernel = KernelFeatures(size=8).fit(features)

    def together(space: Tensor) -> float:
        score = evaluate(space, labels, metrics=("r_precision",), normalize=False, resamples=0)
        return score.values["r_precision"].value

    plain = registry.create("classical", name).fit(features, labels).transform(features)
    lifted = kernel.transform(features)
    moved = registry.create("classical", name).fit(lifted, labels).transform(lifted)
    assert together(plain) < 0.8
    if name in ("mcml", "rca"):
        assert together(moved) > 0.95


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="kernel"):
        KernelFeatures("linear")
    with pytest.raises(ValueError, match="landmarks"):
        KernelFeatures(size=10, landmarks=5)

"""Random classes for every diagnostic, and the four points of the specification."""

import pytest
import torch
from torch import Tensor


@pytest.fixture(scope="session")
def four() -> tuple[Tensor, Tensor]:
    x = torch.tensor([[1, 0], [0.8, 0.6], [0, 1], [-0.6, 0.8]], dtype=torch.float64)
    return x, torch.tensor([0, 0, 1, 1])


@pytest.fixture(scope="session")
def cloud() -> tuple[Tensor, Tensor]:
    """120 items, classes of unlike size, two of them with one item, labels not 0..C-1."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 12, (120,), generator=generator) * 3 - 7
    y[0], y[1] = 2**40, 2**41
    x = torch.randn(120, 6, generator=generator) + torch.randn(200, 6, generator=generator)[y % 200]
    return x, y

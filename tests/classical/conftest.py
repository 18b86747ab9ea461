"""Features of four classes that differ in two directions and are spread out in a third."""

import pytest
import torch
from torch import Tensor


@pytest.fixture
def stretched() -> tuple[Tensor, Tensor]:  # [80, 5] float64, [80]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(20)
    centers = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    noise = torch.randn(80, 5, generator=generator, dtype=torch.float64)
    features = noise * torch.tensor([0.2, 0.2, 3.0, 0.1, 0.1], dtype=torch.float64)
    features[:, :2] += centers[labels]
    return features, labels

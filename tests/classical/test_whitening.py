"""Whitening against its definition."""

import pytest
import torch
from torch import Tensor

from unseen.classical.base import inverse_root
from unseen.classical.whitening import Whitening


def test_the_training_covariance_becomes_the_identity(stretched: tuple[Tensor, Tensor]) -> None:
    moved = Whitening(shrinkage=0.0).fit(*stretched).transform(stretched[0])
    assert torch.allclose(torch.cov(moved.T), torch.eye(5, dtype=torch.float64), atol=1e-8)


def test_full_shrinkage_only_scales(stretched: tuple[Tensor, Tensor]) -> None:
    components = Whitening(shrinkage=1.0).fit(*stretched).components
    assert torch.allclose(components, components[0, 0] * torch.eye(5, dtype=torch.float64))


def test_shrinkage_by_hand() -> None:
    """diag(4, 1) moved by 0.1 towards diag(2.5, 2.5): diag(3.85, 1.15)."""
    root = inverse_root(torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64)), 0.1)
    assert root.diagonal().tolist() == pytest.approx([3.85**-0.5, 1.15**-0.5])


def test_scaled_features_give_the_same_distances(stretched: tuple[Tensor, Tensor]) -> None:
    features, labels = stretched
    usual = Whitening().fit(features, labels).transform(features)
    scaled = Whitening().fit(7 * features, labels).transform(7 * features)
    assert torch.allclose(usual, scaled)


@pytest.mark.parametrize("wrong", [-0.1, 1.1])
def test_bad_shrinkage(wrong: float, stretched: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="shrinkage"):
        Whitening(wrong).fit(*stretched)

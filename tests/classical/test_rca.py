"""RCA against its definition."""

import torch
from torch import Tensor

from unseen.classical.rca import Rca


def test_the_covariance_within_classes_becomes_the_identity(
    stretched: tuple[Tensor, Tensor],
) -> None:
    features, labels = stretched
    moved = Rca(shrinkage=0.0).fit(features, labels).transform(features)
    scatter = torch.zeros(5, 5, dtype=torch.float64)
    for label in range(4):
        own = moved[labels == label]
        for row in own - own.mean(dim=0):
            scatter += torch.outer(row, row)
    assert torch.allclose(scatter / (80 - 4), torch.eye(5, dtype=torch.float64), atol=1e-8)

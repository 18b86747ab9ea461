"""Relevant component analysis."""

from torch import Tensor

from unseen.classical.base import LinearMetric, inverse_root, within_class


class Rca(LinearMetric):
    """RCA, relevant component analysis: directions in which items of a class differ count less.

    Formula:
        G = S^(-1/2), S the covariance within classes (each item less its class's mean), moved by
        `shrinkage` g towards the identity: (1 - g) S + g Tr(S) / D I.

    Paper:
        N. Shental et al., Adjustment Learning and Relevant Component Analysis, ECCV 2002

    Args:
        shrinkage: 0 trusts the covariance, 1 does nothing but scale; 0.1.

    Use:
        closed form, so the first to try of those with labels.

    Example:
        >>> import torch
        >>> from unseen.classical import Rca
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> metric = Rca().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> metric.transform(features).shape
        torch.Size([4, 2])
    """

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        centered = within_class(features, labels)
        freedom = max(1, len(features) - len(labels.unique()))
        return inverse_root(centered.T @ centered / freedom, self.shrinkage)

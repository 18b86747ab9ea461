"""Whitening."""

from torch import Tensor

from unseen.classical.base import LinearMetric, inverse_root


class Whitening(LinearMetric):
    """Whitening: every direction of the features gets the same variance (Mahalanobis distance).

    Formula:
        G = S^(-1/2), S the covariance of all training features, moved by `shrinkage` g towards the
        identity: (1 - g) S + g Tr(S) / D I.

    Paper:
        P. C. Mahalanobis, On the generalised distance in statistics, 1936

    Args:
        shrinkage: 0 trusts the covariance, 1 does nothing but scale; 0.1.

    Use:
        no labels needed; the baseline of the other classical methods.

    Example:
        >>> import torch
        >>> from unseen.classical import Whitening
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> metric = Whitening().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> metric.transform(features).shape
        torch.Size([4, 2])
    """

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        centered = features - features.mean(dim=0)
        return inverse_root(centered.T @ centered / max(1, len(features) - 1), self.shrinkage)

"""Whitening: every direction of the features gets the same variance (Mahalanobis distance).

Source   P. C. Mahalanobis, On the generalised distance in statistics, 1936
Formula  G = S^(-1/2), S the covariance of all training features, moved by `shrinkage` g towards the
         identity: (1 - g) S + g Tr(S) / D I.
Values   shrinkage 0.1.
Use      no labels needed; the baseline of the other classical methods.
"""

from torch import Tensor

from unseen.classical.base import LinearMetric, inverse_root


class Whitening(LinearMetric):
    """shrinkage: 0 trusts the covariance, 1 does nothing but scale."""

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        centred = features - features.mean(dim=0)
        return inverse_root(centred.T @ centred / max(1, len(features) - 1), self.shrinkage)

"""RCA: directions in which the items of a class differ count less (relevant component analysis).

Paper    N. Shental et al., Adjustment Learning and Relevant Component Analysis, ECCV 2002
Formula  G = S^(-1/2), S the covariance within classes (each item less its class's mean), moved by
         `shrinkage` g towards the identity: (1 - g) S + g Tr(S) / D I.
Values   shrinkage 0.1.
Use      closed form, so the first to try of those with labels.
"""

from torch import Tensor

from unseen.classical.base import LinearMetric, inverse_root, within_class


class Rca(LinearMetric):
    """shrinkage: 0 trusts the covariance, 1 does nothing but scale."""

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        centred = within_class(features, labels)
        freedom = max(1, len(features) - len(labels.unique()))
        return inverse_root(centred.T @ centred / freedom, self.shrinkage)

"""The abstract class of classical metrics: a linear map, learned once from features."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor


class LinearMetric(ABC):
    """Abstract: a linear map G, learned once from features and labels; it is `components` [d, D].

    The metric is d(x, y) = |G x - G y|^2, that is the Mahalanobis distance with A = G^T G. `fit`
    gets features of training classes, `transform` moves any features into the learned space, where
    cosine or Euclidean search goes on as usual. Everything is computed in float64: features come
    once, and inverses need it.
    """

    components: Tensor

    def fit(self, features: Tensor, labels: Tensor) -> Self:  # [N, D], [N]
        """Learns from labelled features; returns itself."""
        if features.ndim != 2 or labels.ndim != 1 or len(features) != len(labels):
            raise ValueError(
                "features must be [N, D] and labels [N], "
                f"got {tuple(features.shape)} and {tuple(labels.shape)}"
            )
        if not torch.isfinite(features).all():
            raise ValueError("features must be finite numbers")
        if len(torch.unique(labels)) < 2:
            raise ValueError("labels must name at least two classes")
        self.components = self.learn(features.double(), labels)
        return self

    def transform(self, features: Tensor) -> Tensor:  # [N, D] -> [N, d]
        """Features in the learned space, in their own precision."""
        return (features.double() @ self.components.T).to(features.dtype)

    @abstractmethod
    def learn(self, features: Tensor, labels: Tensor) -> Tensor:  # [N, D] float64 -> [d, D]
        """The map G."""


def inverse_root(matrix: Tensor, shrinkage: float) -> Tensor:  # [D, D], symmetric
    """matrix^(-1/2) after moving it by `shrinkage` towards a multiple of the identity of the same
    trace: covariances of few items have directions of no variance."""
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage must be from 0 to 1, got {shrinkage}")
    size = len(matrix)
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    shrunk = (1 - shrinkage) * matrix + shrinkage * matrix.trace() / size * identity
    values, vectors = torch.linalg.eigh(shrunk)
    smallest = values[-1].clamp(min=1e-30) * 1e-12
    return (vectors * values.clamp(min=smallest).rsqrt()) @ vectors.T


def within_class(features: Tensor, labels: Tensor) -> Tensor:  # [N, D]
    """Features less the mean of their class."""
    _, place, count = labels.unique(return_inverse=True, return_counts=True)
    sums = features.new_zeros(len(count), features.shape[1]).index_add_(0, place, features)
    return features - (sums / count[:, None])[place]

"""Neighbourhood components analysis."""

import numpy as np
import torch
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from torch import Tensor

from unseen.classical.base import LinearMetric


class Nca(LinearMetric):
    """NCA: a random neighbour, drawn by distance, is to be of the same class.

    Formula:
        p_ij = exp(-|G x_i - G x_j|^2) / sum over k != i of exp(-|G x_i - G x_k|^2); maximise the
        sum of p_ij over items i and others j of the same class. By L-BFGS, from the identity.

    Paper:
        J. Goldberger et al., Neighbourhood Components Analysis, NeurIPS 2004

    Args:
        max_iterations: of L-BFGS; 100.

    Use:
        an [N, N] matrix of float64: 275 MB for the 5,864 training images of CUB. scikit-learn
        does the work.

    Example:
        >>> import torch
        >>> from unseen.classical import Nca
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> metric = Nca().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> metric.transform(features).shape
        torch.Size([4, 2])
    """

    def __init__(self, max_iterations: int = 100) -> None:
        if max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
        self.max_iterations = max_iterations

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        fitted = NeighborhoodComponentsAnalysis(init="identity", max_iter=self.max_iterations)
        fitted.fit(features.cpu().numpy(), labels.cpu().numpy())
        return torch.from_numpy(np.asarray(fitted.components_)).to(features)

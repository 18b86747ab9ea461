"""Maximally collapsing metric learning."""

import math

import torch
from torch import Tensor

from unseen.classical.base import LinearMetric
from unseen.core.tuples import relations


class Mcml(LinearMetric):
    """MCML: all items of a class are to collapse to one point, the others to lie infinitely far.

    Formula:
        d_ij = (x_i - x_j)^T A (x_i - x_j), p_ij = exp(-d_ij) / sum over k != i of exp(-d_ik);
        minimise over positive semidefinite A

            - sum over i of 1 / (n_i - 1) * sum over j of i's class of log p_ij

        which is convex. Its gradient is 2 X^T (diag(Q 1) - Q) X with Q the symmetric part of
        p0 - p, p0_ij = 1 / (n_i - 1) within a class. Gradient steps that halve until the cost
        falls, each followed by cutting negative eigenvalues off.

    Paper:
        A. Globerson, S. Roweis, Metric Learning by Collapsing Classes, NeurIPS 2005

    Args:
        max_iterations: gradient steps, fewer when no step lowers the cost any more; 50.

    Use:
        an [N, N] matrix and D^3 per step. Items alone in their class are left out of the sum.

    Example:
        >>> import torch
        >>> from unseen.classical import Mcml
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> metric = Mcml().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> metric.transform(features).shape
        torch.Size([4, 2])
    """

    def __init__(self, max_iterations: int = 50) -> None:
        if max_iterations < 1:
            raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
        self.max_iterations = max_iterations

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        same = relations(labels)[0].to(features.dtype)
        wanted = same / same.sum(dim=1, keepdim=True).clamp(min=1)  # [N, N], rows of 1 or 0
        metric = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
        cost, gradient = self.cost(metric, features, wanted)
        rate = 1 / gradient.norm().clamp(min=1e-30).item()
        for _ in range(self.max_iterations):
            for _ in range(40):  # halvings: beyond these the step is lost in rounding
                trial = _semidefinite(metric - rate * gradient)
                new_cost, new_gradient = self.cost(trial, features, wanted)
                if new_cost < cost:
                    break
                rate /= 2
            else:
                break
            metric, cost, gradient, rate = trial, new_cost, new_gradient, 2 * rate
        values, vectors = torch.linalg.eigh(metric)
        return values.clamp(min=0).sqrt()[:, None] * vectors.T

    def cost(self, metric: Tensor, features: Tensor, wanted: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient in A, per item."""
        moved = features @ metric  # [N, D]
        lengths = (moved * features).sum(dim=1)
        dist = lengths[:, None] + lengths - 2 * moved @ features.T  # [N, N]
        log_p = (-dist).fill_diagonal_(-math.inf).log_softmax(dim=1).fill_diagonal_(0.0)
        counted = wanted.sum(dim=1, keepdim=True)  # 0 for items alone in their class
        gap = wanted - counted * log_p.exp().fill_diagonal_(0.0)
        gap = (gap + gap.T) / 2
        gradient = 2 * (features.T @ (gap.sum(dim=1)[:, None] * features - gap @ features))
        num = len(features)
        return -(wanted * log_p).sum().item() / num, gradient / num


def _semidefinite(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0)) @ vectors.T

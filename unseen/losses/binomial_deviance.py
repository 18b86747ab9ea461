"""Binomial deviance loss."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from unseen.core.comparison import Comparison, Side
from unseen.core.geometry import cosine, weighted_mean
from unseen.losses.base import Loss, check_choice, check_positive


class BinomialDevianceLoss(Loss):
    """Binomial deviance: a logistic loss on every pair's cosine, negatives much steeper.

    Formula:
        cosines S:

            L = mean over positive pairs of log(1 + exp(-alpha (S - beta)))
              + mean over negative pairs of log(1 + exp(alpha * cost * (S - beta)))

        `reduction="sum_anchors"`: the two means of each anchor, summed over anchors.

    Paper:
        D. Yi, Z. Lei, S. Li, Deep Metric Learning for Practical Person Re-Identification, 2014,
        https://arxiv.org/abs/1407.4979

    Args:
        alpha: steepness; 2 (Jacob et al.).
        beta: the cosine in the middle; 0.5 (Jacob et al.).
        cost: how much steeper negatives are; 25 (Jacob et al.), 10 in other code.
        reduction: "mean" of all pairs, or "sum_anchors" (Jacob et al.).

    Use:
        m_per_class sampler; no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import BinomialDevianceLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = BinomialDevianceLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        8.691
    """

    one_sided = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"horde": {"reduction": "sum_anchors"}}

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 0.5,
        cost: float = 25.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_positive(alpha=alpha, cost=cost)
        check_choice("reduction", reduction, ("mean", "sum_anchors"))
        if not -1 <= beta <= 1:
            raise ValueError(f"beta is a cosine, -1 to 1, got {beta}")
        self.alpha, self.beta, self.cost, self.reduction = alpha, beta, cost, reduction

    def on_comparison(self, batch: Comparison) -> Tensor:
        positive, negative = batch.sides(cosine)
        num_anchors = len(batch.labels)
        return self._mean(positive, -self.alpha, num_anchors) + self._mean(
            negative, self.alpha * self.cost, num_anchors
        )

    def _mean(self, side: Side, slope: float, num_anchors: int) -> Tensor:
        terms = F.softplus(slope * (side.values - self.beta))
        if self.reduction == "mean":
            return weighted_mean(terms, side.counts)
        per_anchor = side.per_anchor(num_anchors).clamp(min=1)  # [N]
        return (terms * side.counts / per_anchor[side.anchor]).sum()

"""Binomial deviance: a logistic price on every pair's cosine, negatives much steeper.

Paper    D. Yi, Z. Lei, S. Li, Deep Metric Learning for Practical Person Re-Identification, 2014,
         https://arxiv.org/abs/1407.4979
Formula  cosines S:

             L = mean over positive pairs of log(1 + exp(-alpha (S - beta)))
               + mean over negative pairs of log(1 + exp(alpha * cost * (S - beta)))

         `reduction="sum_anchors"`: the two means of each anchor, summed over anchors.
Values   alpha 2, beta 0.5, cost 25 (Jacob et al., summed over anchors; other code has cost 10).
Use      samples_per_class sampler; no miner.
"""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from unseen.comparison import Comparison, Side
from unseen.geometry import cosine, weighted_mean
from unseen.losses.base import Loss, check_choice, check_positive


class BinomialDeviance(Loss):
    """alpha: steepness. beta: the cosine in the middle. cost: how much steeper negatives are."""

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

    def price(self, batch: Comparison) -> Tensor:
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

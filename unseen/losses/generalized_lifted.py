"""Generalised lifted structure loss."""

import math
from typing import Any, ClassVar

from torch import Tensor

from unseen.core.comparison import Comparison
from unseen.core.geometry import OFF, among, distance, log_sum_exp, masked_mean, soft_maximum
from unseen.core.tuples import complete
from unseen.losses.base import Loss, check_choice, check_not_negative, penalized


class GeneralizedLiftedLoss(Loss):
    """Generalised lifted structure: an anchor's farthest positives against its nearest negatives.

    Formula:
        Euclidean distances d of raw embeddings x, positives P(a), negatives N(a):

            L = mean over anchors of [ log sum over p in P(a) of exp(d(a,p))
                                     + log sum over n in N(a) of exp(margin - d(a,n)) ]+
              + nu * mean of |x|^2

        over the anchors that have both; `penalty="norm"` takes |x| instead of its square.
        (Equation 3 of Roth et al. sums over anchors and lets an anchor be its own positive.)

    Paper:
        A. Hermans, L. Beyer, B. Leibe, In Defense of the Triplet Loss for Person
        Re-Identification, 2017, https://arxiv.org/abs/1703.07737

    Args:
        margin: how much farther negatives are to be; 1 (Roth et al.).
        nu: weight of the penalty on lengths; 0.005 (Roth et al.).
        penalty: "squared" takes |x|^2, "norm" takes |x| (the code of Roth et al.).

    Use:
        m_per_class sampler, no miner. A run evaluates its raw embeddings by Euclidean distance.

    Example:
        >>> import torch
        >>> from unseen.losses import GeneralizedLiftedLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = GeneralizedLiftedLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        1.499
    """

    scale_invariant = False
    compares_raw = True
    batch_free_weights = ("nu",)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"penalty": "norm"},
    }

    def __init__(self, margin: float = 1.0, nu: float = 0.005, penalty: str = "squared") -> None:
        super().__init__()
        if not math.isfinite(margin):
            raise ValueError(f"margin must be a finite number, got {margin}")
        check_not_negative(nu=nu)
        check_choice("penalty", penalty, ("squared", "norm"))
        self.margin, self.nu, self.penalty = margin, nu, penalty

    def on_comparison(self, batch: Comparison) -> Tensor:
        loss = batch.matrix_loss(distance, self._on_matrix, self._slope)
        return penalized(loss, batch.embeddings, self.nu, self.penalty)

    def _on_matrix(self, dist: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        costs = self.margin + log_sum_exp(dist, pos) + log_sum_exp(dist, neg, scale=-1.0)  # [N]
        return masked_mean(costs.clamp(min=0), where=complete(pos, neg))

    def _slope(self, dist: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the distances."""
        farthest, far = soft_maximum(among(pos).add_(dist))  # [N, 1], [N, M]
        nearest, near = soft_maximum(among(neg).sub_(dist))
        costs = farthest.add_(nearest).add_(self.margin)
        num = (costs > -OFF / 2).sum().clamp(min=1)  # those with both
        costs.clamp_(min=0)
        return costs.sum() / num, far.sub_(near).mul_(costs.sign() / num)

"""Generalised lifted structure: an anchor's farthest positives against its nearest negatives.

Paper    A. Hermans, L. Beyer, B. Leibe, In Defense of the Triplet Loss for Person
         Re-Identification, 2017, https://arxiv.org/abs/1703.07737
Formula  Euclidean distances d of raw embeddings x, positives P(a), negatives N(a):

             L = mean over anchors of [ log sum over p in P(a) of exp(d(a,p))
                                      + log sum over n in N(a) of exp(margin - d(a,n)) ]+
               + nu * mean of |x|^2

         over the anchors that have both; `penalty="norm"` takes |x| instead of its square.
         (Equation 3 of Roth et al. sums over anchors and lets an anchor be its own positive.)
Values   margin 1, nu 0.005 (Roth et al.; their code: norm).
Use      samples_per_class sampler, no miner. A run judges its raw embeddings by Euclidean distance.
"""

import math
from typing import Any, ClassVar

from torch import Tensor

from unseen.geometry import OFF, among, distance, log_sum_exp, masked_mean, soft_maximum
from unseen.losses.base import Comparison, Loss, check_choice, check_not_negative, penalised
from unseen.tuples import complete


class GeneralizedLifted(Loss):
    """margin: how much farther negatives are to be. nu: weight of the penalty on lengths."""

    scale_invariant = False
    judged_raw = True
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

    def price(self, batch: Comparison) -> Tensor:
        price = batch.priced(distance, self._on_matrix, self._slope)
        return penalised(price, batch.embeddings, self.nu, self.penalty)

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

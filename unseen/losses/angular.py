"""Angular: the angle at the negative, seen from the anchor and its positive, below a bound.

Paper    J. Wang et al., Deep Metric Learning with Angular Loss, ICCV 2017,
         https://arxiv.org/abs/1708.01682
Formula  cosines S, inner products G of raw embeddings x, t = tan(alpha)^2, over positive pairs (a,
         p):

             f(n) = 4 t (S[a,n] + S[p,n]) - 2 (1 + t) S[a,p]
             L    = mean over (a, p) of   log(1 + sum over n in N(a) of exp(G[a,n] - G[a,p]))
                                 + weight log(1 + sum over n in N(a) of exp(f(n)))
                  + nu * mean of |x|^2

         `n_pair=False` leaves out the first term; `penalty="norm"` takes |x| instead of its square.
         (Equation 5 of Roth et al. squares the tangent together with its factor, has n for p in the
         last product and that product outside the exponential.)
Values   alpha 45 degrees, weight 2, nu 0.005 (Roth et al.; their code: norm).
Use      n_pair miner (one random positive per anchor); without it all positive pairs. With the
         first term a run judges raw embeddings by Euclidean distance.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.geometry import cosine, dot, log_sum_exp
from unseen.losses.base import (
    Comparison,
    Loss,
    check_choice,
    check_not_negative,
    penalty,
)

# entries of [pairs, references] at a time; where there are more, they are computed again for the
# gradient instead of kept
BLOCK = 1 << 22


class Angular(Loss):
    """alpha: the bound in degrees. weight: of the angular term beside the n-pair term."""

    batch_free_weights = ("nu",)
    usual_miner = "n_pair"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"penalty": "norm"},
    }

    def __init__(
        self,
        alpha: float = 45.0,
        weight: float = 2.0,
        nu: float = 0.005,
        penalty: str = "squared",
        n_pair: bool = True,
    ) -> None:
        super().__init__()
        if not 0 < alpha < 90:
            raise ValueError(f"alpha is an angle within (0, 90) degrees, got {alpha}")
        check_not_negative(weight=weight, nu=nu)
        check_choice("penalty", penalty, ("squared", "norm"))
        self.weight, self.nu, self.penalty, self.n_pair = weight, nu, penalty, n_pair
        self.tangent = math.tan(math.radians(alpha)) ** 2
        self.scale_invariant = not n_pair and nu == 0
        self.judged_raw = n_pair

    def price(self, batch: Comparison) -> Tensor:
        anchor, positive = batch.positive_pairs()  # [P]
        neg = batch.masks()[1]  # [N, M]
        if batch.tuples is None and batch.ref_labels is None:  # (a, p) and (p, a) cost the same
            once = anchor < positive
            total = 2 * self.weight * self._angular_sum(batch, anchor[once], positive[once], neg)
        else:
            total = self.weight * self._angular_sum(batch, anchor, positive, neg)
        if self.n_pair:
            products = batch.matrix(dot)
            near = products.flatten().index_select(0, anchor * products.shape[1] + positive)
            across = log_sum_exp(products, neg).index_select(0, anchor)
            total = total + F.softplus(across - near).sum()
        return total / max(1, len(anchor)) + penalty(batch.embeddings, self.nu, self.penalty)

    def _angular_sum(
        self, batch: Comparison, anchor: Tensor, positive: Tensor, neg: Tensor
    ) -> Tensor:
        sim = batch.matrix(cosine)  # [N, M]

        def block(anchor: Tensor, positive: Tensor) -> Tensor:
            if batch.ref_embeddings is None:
                of_positive = sim.index_select(0, positive)  # [P, M]
            else:
                references = batch.ref_embeddings
                of_positive = cosine(references[positive], references)
            both = sim.index_select(0, anchor) + of_positive
            push = log_sum_exp(both, neg.index_select(0, anchor), scale=4 * self.tangent)  # [P]
            near = sim.flatten().index_select(0, anchor * sim.shape[1] + positive)
            return F.softplus(push - (2 + 2 * self.tangent) * near).sum()

        size = max(1, BLOCK // max(1, sim.shape[1]))
        if len(anchor) <= size:
            return block(anchor, positive)
        pieces = zip(anchor.split(size), positive.split(size), strict=True)
        return torch.stack(
            [checkpoint(block, *piece, use_reentrant=False) for piece in pieces]
        ).sum()

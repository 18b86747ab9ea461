"""Angular loss."""

import math
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.core.comparison import Comparison
from unseen.core.geometry import among, cosine, dot, log_sum_exp, positive_pairs, soft_maximum
from unseen.losses.base import Loss, check_choice, check_not_negative, penalized

# entries of [pairs, references] at a time; where there are more, they are computed again for the
# gradient instead of kept
BLOCK = 1 << 22
SMALL = 160  # items: no batch of so many has a larger block


class AngularLoss(Loss):
    """Angular: the angle at the negative, seen from the anchor and its positive, below a bound.

    Formula:
        cosines S, inner products G of raw embeddings x, t = tan(alpha)^2, over positive pairs (a,
        p):

            f(n) = 4 t (S[a,n] + S[p,n]) - 2 (1 + t) S[a,p]
            L    = mean over (a, p) of   log(1 + sum over n in N(a) of exp(G[a,n] - G[a,p]))
                                + weight log(1 + sum over n in N(a) of exp(f(n)))
                 + nu * mean of |x|^2

        `n_pair=False` leaves out the first term; `penalty="norm"` takes |x| instead of its square.
        (Equation 5 of Roth et al. squares the tangent together with its factor, has n for p in the
        last product and that product outside the exponential.)

    Paper:
        J. Wang et al., Deep Metric Learning with Angular Loss, ICCV 2017,
        https://arxiv.org/abs/1708.01682

    Args:
        alpha: the bound on the angle at the negative, in degrees; 45 (Roth et al.).
        weight: of the angular term beside the n-pair term; 2 (Roth et al.).
        nu: weight of the penalty on the lengths of raw embeddings; 0.005 (Roth et al.).
        penalty: "squared" takes |x|^2, "norm" takes |x| (the code of Roth et al.).
        n_pair: False leaves out the n-pair term.

    Use:
        n_pair miner (one random positive per anchor); without it all positive pairs. With the
        first term a run evaluates raw embeddings by Euclidean distance.

    Example:
        >>> import torch
        >>> from unseen.losses import AngularLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = AngularLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        7.177
    """

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
        self.compares_raw = n_pair

    def on_comparison(self, batch: Comparison) -> Tensor:
        own = batch.tuples is None and batch.ref_labels is None and len(batch.labels) <= SMALL
        slope = self._slope if own else None
        loss = batch.matrix_loss(cosine, partial(self._angular, batch), slope)
        loss = penalized(loss, batch.embeddings, self.nu, self.penalty)
        if not self.n_pair:
            return loss
        anchor, positive = batch.positive_pairs()  # [P]
        products = batch.matrix(dot)  # [N, M]
        near = products.flatten().index_select(0, anchor * products.shape[1] + positive)
        across = log_sum_exp(products, batch.masks()[1]).index_select(0, anchor)
        return loss + F.softplus(across - near).sum() / max(1, len(anchor))

    def _angular(self, batch: Comparison, sim: Tensor, _: Tensor, neg: Tensor) -> Tensor:
        """The angular term, weighed."""
        anchor, positive = batch.positive_pairs()  # [P]
        weight = self.weight / max(1, len(anchor))
        if batch.tuples is None and batch.ref_labels is None:  # (a, p) and (p, a) cost the same
            once = anchor < positive
            return 2 * weight * self._angular_sum(batch, sim, anchor[once], positive[once], neg)
        return weight * self._angular_sum(batch, sim, anchor, positive, neg)

    def _slope(self, sim: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The angular term of all positive pairs, and its gradient by the similarities."""
        pair, anchor = positive_pairs(pos.triu())  # [P], each pair once
        positive = pair % len(sim)
        both = sim.index_select(0, anchor).add_(sim.index_select(0, positive))  # [P, N]
        exponents = among(neg).index_select(0, anchor).add_(both, alpha=4 * self.tangent)
        push, fractions = soft_maximum(exponents)  # [P, 1], [P, N]
        near = sim.flatten().index_select(0, pair)
        costs = push[:, 0].sub_(near, alpha=2 + 2 * self.tangent)
        weight = self.weight / max(1, len(pair))
        by_cost = costs.sigmoid().mul_(weight)
        by_both = fractions.mul_(by_cost[:, None] * (4 * self.tangent))
        slope = torch.zeros_like(sim).index_add_(0, anchor, by_both)
        slope.index_add_(0, positive, by_both)
        slope.view(-1).index_add_(0, pair, by_cost, alpha=-(2 + 2 * self.tangent))
        return F.softplus(costs).sum() * weight, slope

    def _angular_sum(
        self, batch: Comparison, sim: Tensor, anchor: Tensor, positive: Tensor, neg: Tensor
    ) -> Tensor:
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

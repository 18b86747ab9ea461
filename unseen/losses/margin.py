"""Margin: positives inside, negatives outside a learned boundary on the distance.

Paper    C.-Y. Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017,
         https://arxiv.org/abs/1706.07567
Formula  over triplets (a, p, n), Euclidean distances d of unit embeddings, boundary b of a's class:

             L = ( sum of [d(a,p) - b + margin]+ + [b - d(a,n) + margin]+ ) / number of active terms

         with `normaliser="active_triplets"` the divisor is the number of triplets with an active term,
         which is what the code of Roth et al. computes.
Values   margin 0.2, boundary starting at 1.2 (paper); per class and learned with rate 5e-4 (Roth).
Use      samples_per_class sampler; distance_weighted miner. Roth also start the boundary at 0.6.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.geometry import unit_distance
from unseen.losses.base import Comparison, Loss, check_choice, check_not_negative
from unseen.tuples import Triplets


class Margin(Loss):
    """boundary: 'per_class', 'shared' (one learned scalar) or 'fixed'; beta is where it starts."""

    usual_miner = "distance_weighted"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"lr": 5e-4},
        "revisit_code": {"lr": 5e-4, "normaliser": "active_triplets"},
        "thesis": {"margin": 0.5, "boundary": "shared", "lr": 5e-5},
        "thesis_code": {"boundary": "fixed"},
    }

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.2,
        beta: float = 1.2,
        boundary: str = "per_class",
        normaliser: str = "active_terms",
        lr: float | None = None,
    ) -> None:
        super().__init__()
        check_choice("boundary", boundary, ("per_class", "shared", "fixed"))
        check_choice("normaliser", normaliser, ("active_terms", "active_triplets"))
        if margin < 0 or not 0 < beta < 2:
            raise ValueError(
                f"margin must be >= 0 and beta within (0, 2), the distances of unit vectors; "
                f"got margin={margin}, beta={beta}"
            )
        check_not_negative(lr=lr or 0.0)
        self.margin, self.normaliser, self.own_lr = margin, normaliser, lr
        start = torch.full((num_classes if boundary == "per_class" else 1,), float(beta))
        self.beta = nn.Parameter(start, requires_grad=boundary != "fixed")

    def price(self, batch: Comparison) -> Tensor:
        dist = batch.matrix(unit_distance)  # [N, M]
        beta = self.beta if len(self.beta) == 1 else self.beta[batch.labels]
        pull = (dist + (self.margin - beta)[:, None]).clamp(min=0)
        push = ((self.margin + beta)[:, None] - dist).clamp(min=0)
        positive, negative = batch.triplet_pair_counts()
        total = (pull * positive).sum() + (push * negative).sum()
        if self.normaliser == "active_triplets":
            active = count_active_triplets(batch, pull > 0, push > 0)
        else:
            active = (positive * (pull > 0)).sum() + (negative * (push > 0)).sum()
        return total / active.clamp(min=1)


def count_active_triplets(batch: Comparison, pulls: Tensor, pushes: Tensor) -> Tensor:
    """How many triplets have an active term on either side, from the masks [N, M] of active pairs."""
    if isinstance(batch.tuples, Triplets):
        anchor, positive, negative = batch.tuples
        return (pulls[anchor, positive] | pushes[anchor, negative]).sum()
    positive, negative = batch.pair_counts()
    idle = (positive * ~pulls).sum(dim=1) * (negative * ~pushes).sum(dim=1)  # [N], neither side
    return (positive.sum(dim=1) * negative.sum(dim=1) - idle).sum()

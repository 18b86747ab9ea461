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
from unseen.losses.base import Comparison, Loss


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
        if boundary not in ("per_class", "shared", "fixed"):
            raise ValueError(f"boundary must be per_class, shared or fixed, got {boundary!r}")
        if normaliser not in ("active_terms", "active_triplets"):
            raise ValueError(
                f"normaliser must be active_terms or active_triplets, got {normaliser!r}"
            )
        if margin < 0 or not 0 < beta < 2:
            raise ValueError(
                f"margin must be >= 0 and beta within (0, 2), the distances of unit vectors; "
                f"got margin={margin}, beta={beta}"
            )
        self.margin, self.normaliser, self.own_lr = margin, normaliser, lr
        start = torch.full((num_classes if boundary == "per_class" else 1,), float(beta))
        self.beta = nn.Parameter(start, requires_grad=boundary != "fixed")

    def price(self, batch: Comparison) -> Tensor:
        dist = batch.matrix(unit_distance)  # [N, M]
        positive, negative = batch.triplet_pair_counts()
        beta = self.beta if len(self.beta) == 1 else self.beta[batch.labels]
        pull = (dist - beta[:, None] + self.margin).clamp(min=0)
        push = (beta[:, None] - dist + self.margin).clamp(min=0)
        total = (pull * positive).sum() + (push * negative).sum()
        if self.normaliser == "active_triplets":
            anchor, p, n = batch.triplets()
            active = ((pull[anchor, p] > 0) | (push[anchor, n] > 0)).sum()
        else:
            active = (positive * (pull > 0)).sum() + (negative * (push > 0)).sum()
        return total / active.clamp(min=1)

"""Quadruplet: a triplet, and the positive pair also closer than two items of two other classes.

Paper    W. Chen et al., Beyond Triplet Loss: A Deep Quadruplet Network for Person Re-Identification,
         CVPR 2017, https://arxiv.org/abs/1704.01719
Formula  Euclidean distances d of unit embeddings, l of a class that is neither a's nor n's:

             L = mean over (a, p, n) of   [d(a,p) - d(a,n) + margin]+
                                        + [d(a,p) - d(n,l) + fourth_margin]+

         `fourth="all"` averages the second term over every such l, which is what drawing one at
         `"random"` comes to on average. With fewer than three classes the second term is 0.
Values   margins 1 and 0.5 (Roth et al.; 0.2 and 0.2 in their code).
Use      samples_per_class sampler; distance_weighted miner.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.geometry import unit_distance
from unseen.losses.base import (
    Comparison,
    Loss,
    check_choice,
    check_not_negative,
    gather_triplets,
)
from unseen.miners.base import draw_per_row

BLOCK = 1 << 22  # entries of [triplets, references] at a time; more are computed again for the gradient


class Quadruplet(Loss):
    """margin: of the triplet. fourth_margin: against the pair (n, l). fourth: all or random."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"margin": 0.2, "fourth_margin": 0.2},
    }

    def __init__(
        self, margin: float = 1.0, fourth_margin: float = 0.5, fourth: str = "all", seed: int = 0
    ) -> None:
        super().__init__()
        check_not_negative(margin=margin, fourth_margin=fourth_margin)
        check_choice("fourth", fourth, ("all", "random"))
        self.margin, self.fourth_margin, self.fourth = margin, fourth_margin, fourth
        self.generator = torch.Generator().manual_seed(seed)

    def price(self, batch: Comparison) -> Tensor:
        dist = batch.matrix(unit_distance)  # [N, M]
        triplets = batch.triplets()
        near, far = gather_triplets(dist, triplets)  # [T]
        total = (near - far + self.margin).clamp(min=0).sum()
        references = dist if batch.ref_embeddings is None else None

        def block(near: Tensor, anchor: Tensor, negative: Tensor, drawn: Tensor) -> Tensor:
            rows = (
                references.index_select(0, negative)
                if references is not None
                else unit_distance(batch.ref_embeddings[negative], batch.ref_embeddings)
            )  # [T, M]
            hinge = (near[:, None] + self.fourth_margin - rows).clamp(min=0)
            allowed = self._admissible(batch, anchor, negative)
            if self.fourth == "random":
                hinge, allowed = hinge.gather(1, drawn), allowed.gather(1, drawn)
            hinge = hinge.masked_fill(~allowed, 0.0).sum(dim=1)
            return (hinge / allowed.sum(dim=1).clamp(min=1)).sum()

        return total

"""Distance-weighted: negatives drawn so that their distances come out spread evenly.

Paper    C.-Y. Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017,
         https://arxiv.org/abs/1706.07567
Formula  distances d of random points on the unit sphere in D dimensions have density proportional to
         d^(D-2) * (1 - d^2/4)^((D-3)/2). A negative is drawn with the inverse of that as its weight, in
         logarithms (the weights span hundreds of powers of e):

             log w(d) = (2 - D) log d - (D - 3)/2 * log(1 - d^2/4),   d clamped to [lower, 2 - 1e-4]

         among negatives with d <= upper; if an anchor has none, uniformly among all its negatives.
         The positive is uniform. `per_anchor` triplets for each anchor.
Values   lower 0.5, upper 1.4 (paper). The code of Roth et al. has no upper limit: preset revisit_code.
Use      margin, triplet, contrastive, SNR or any loss on triplets; `switch` for rho-regularisation.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.geometry import unit_distance
from unseen.miners.base import TripletMiner, draw_per_row, valid_anchors
from unseen.tuples import Triplets


class DistanceWeighted(TripletMiner):
    """lower, upper: the distances below which weights stop growing, above which negatives are left."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"upper": None},
        "thesis": {},
        "thesis_code": {},
    }

    def __init__(
        self,
        lower: float = 0.5,
        upper: float | None = 1.4,
        per_anchor: int = 1,
        switch: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(switch, seed)
        if not 0 < lower < 2 or (upper is not None and upper <= lower):
            raise ValueError(
                f"lower must be within (0, 2) and upper above it or None, "
                f"got lower={lower}, upper={upper}"
            )
        if per_anchor < 1:
            raise ValueError(f"per_anchor must be at least 1, got {per_anchor}")
        self.lower, self.upper, self.per_anchor = lower, upper, per_anchor

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        anchor = valid_anchors(pos, neg).repeat_interleave(self.per_anchor)
        dist = unit_distance(embeddings, references)[anchor]  # [A, M]
        allowed = neg[anchor]
        log_weights = self.log_weights(dist, embeddings.shape[1])
        if self.upper is not None:
            within = allowed & (dist <= self.upper)
            stranded = ~within.any(dim=1, keepdim=True)
            allowed = within | (stranded & allowed)
            log_weights = log_weights.masked_fill(stranded, 0.0)
        return Triplets(
            anchor,
            draw_per_row(pos[anchor], self.generator),
            draw_per_row(allowed, self.generator, log_weights),
        )

    def log_weights(self, dist: Tensor, dimension: int) -> Tensor:
        """log w(d), up to a constant."""
        dist = dist.clamp(self.lower, 2 - 1e-4)
        return (2 - dimension) * torch.log(dist) - (dimension - 3) / 2 * torch.log1p(
            -dist.square() / 4
        )

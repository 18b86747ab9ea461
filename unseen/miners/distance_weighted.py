"""Distance-weighted miner."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.geometry import unit_squared_distance
from unseen.core.tuples import Triplets
from unseen.miners.base import TripletMiner, draw_per_row, valid_anchors


class DistanceWeightedMiner(TripletMiner):
    """Distance-weighted: negatives drawn so that their distances come out spread evenly.

    Formula:
        distances d of random points on the unit sphere in D dimensions have density proportional
        to d^(D-2) * (1 - d^2/4)^((D-3)/2). A negative is drawn with the inverse of that as its
        weight, in logarithms (the weights span hundreds of powers of e):

            log w(d) = (2 - D) log d - (D - 3)/2 * log(1 - d^2/4),   d clamped to [lower, 2 - 1e-4]

        among negatives with d <= upper; an anchor that has none draws uniformly among all its
        negatives (stranded="uniform") or makes no triplet ("drop").
        The positive is uniform. `per_anchor` triplets for each anchor, drawn independently.
        (Equation 23 of Roth et al. lost the square in 1 - d^2/4; the lambda of 24 looks like a
        bound on weights and is `lower`, one on distances.)

    Paper:
        C.-Y. Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017,
        https://arxiv.org/abs/1706.07567

    Args:
        lower: distances below it weigh as this one; 0.5 (paper).
        upper: no negative is drawn beyond it; 1.4 (paper). None: no limit (the code of Roth et
            al.).
        per_anchor: triplets for each anchor; 1. None: as many as its class has items (Psomas'
            code).
        stranded: what an anchor without a negative below upper does: "uniform" or "drop" (Psomas'
            code).
        switch: probability that a triplet becomes (a, a, j), j another item of a's class (the rho
            switch of Roth et al. 2020).
        seed: of the draws.

    Use:
        margin, triplet, contrastive, SNR or any loss on triplets; `switch` for rho-regularisation.

    Example:
        >>> import torch
        >>> from unseen.miners import DistanceWeightedMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> triplets = DistanceWeightedMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> len(triplets.anchor)
        4
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"upper": None},
        "thesis": {},
        "thesis_code": {"per_anchor": None, "stranded": "drop"},
    }

    def __init__(
        self,
        lower: float = 0.5,
        upper: float | None = 1.4,
        per_anchor: int | None = 1,
        stranded: str = "uniform",
        switch: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(switch, seed)
        if not 0 < lower < 2 or (upper is not None and upper <= lower):
            raise ValueError(
                f"lower must be within (0, 2) and upper above it or None, "
                f"got lower={lower}, upper={upper}"
            )
        if per_anchor is not None and per_anchor < 1:
            raise ValueError(f"per_anchor must be at least 1 or None, got {per_anchor}")
        if stranded not in ("uniform", "drop"):
            raise ValueError(f"stranded must be uniform or drop, got {stranded!r}")
        self.lower, self.upper, self.per_anchor = lower, upper, per_anchor
        self.drops_stranded = stranded == "drop"

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        squared = unit_squared_distance(embeddings, references)  # [N, M]
        log_weights = self.log_weights(squared, embeddings.shape[1])
        allowed = neg
        if self.upper is not None:
            within = neg & (squared <= self.upper**2)
            stranded = within.sum(dim=1, keepdim=True) == 0  # [N, 1]
            allowed = within if self.drops_stranded else within | (stranded & neg)
            log_weights.masked_fill_(stranded, 0.0)
        valid = valid_anchors(pos, allowed)
        draws = self.per_anchor
        if draws is None:
            class_size = (~neg).sum(dim=1)[valid]  # the anchor itself belongs to its class
            draws = int(class_size.max()) if len(valid) else 1
        positive = draw_per_row(pos, self.generator, draws=draws)[valid]  # [A, draws]
        negative = draw_per_row(allowed, self.generator, log_weights, draws)[valid]
        anchor = valid[:, None].expand(-1, draws)
        if self.per_anchor is None:
            counted = torch.arange(draws, device=valid.device) < class_size[:, None]
            return Triplets(anchor[counted], positive[counted], negative[counted])
        return Triplets(anchor.flatten(), positive.flatten(), negative.flatten())

    def log_weights(self, squared: Tensor, dimension: int) -> Tensor:
        """log w(d), from squared distances."""
        squared = squared.clamp(self.lower**2, (2 - 1e-4) ** 2)
        far = (squared / -4).log1p_()
        return squared.log_().mul_(1 - dimension / 2).sub_(far, alpha=(dimension - 3) / 2)

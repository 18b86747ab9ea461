"""Semi-hard miner."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.geometry import unit_distance, unit_squared_distance
from unseen.core.tuples import Triplets
from unseen.miners.base import TripletMiner, draw_per_row, valid_anchors

_ENTRIES = 2**20  # of a chunk's matrix: bounds the memory, whatever the class sizes


class SemiHardMiner(TripletMiner):
    """Semi-hard: negatives farther than the positive, but not by more than a margin.

    Formula:
        with distances d of unit embeddings (raised to `power`), by `definition`:

            revisit  for each anchor, p uniform; n uniform among d(a,p) < d(a,n) < d(a,p) + margin,
                     among all negatives if there is none
            facenet  for each pair (a, p), the nearest negative with d(a,n) > d(a,p); pairs without
                     one give no triplet; neither margin nor upper plays a part
            window   every triplet with 0 < d(a,n) - d(a,p) <= margin

        `upper=False` leaves out the upper bound, as equation 20 of Roth et al. 2020 prints it (and
        2.20 of Psomas); the code of both has it.

    Paper:
        F. Schroff et al., FaceNet: A Unified Embedding for Face Recognition and Clustering, CVPR
        2015, https://arxiv.org/abs/1503.03832

    Args:
        definition: revisit (code of Roth et al.), facenet or window (code of Psomas' thesis).
        margin: the window's width; 0.2 on plain distances (code of Roth et al.), 0.1 (code of
            Psomas' thesis).
        power: of the distance; 2 for FaceNet itself, which states its window on squared distances.
        upper: False leaves out the upper bound.
        switch: probability that a triplet becomes (a, a, j), j another item of a's class (the rho
            switch of Roth et al. 2020).
        seed: of the draws.

    Use:
        triplet loss with the same margin.

    Example:
        >>> import torch
        >>> from unseen.miners import SemiHardMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> triplets = SemiHardMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> len(triplets.anchor)
        4
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"upper": False},
        "revisit_code": {},
        "thesis": {"definition": "facenet"},
        "thesis_code": {"definition": "window", "margin": 0.1},
    }

    def __init__(
        self,
        definition: str = "revisit",
        margin: float = 0.2,
        power: int = 1,
        upper: bool = True,
        switch: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(switch, seed)
        if definition not in ("revisit", "facenet", "window"):
            raise ValueError(f"definition must be revisit, facenet or window, got {definition!r}")
        if margin <= 0:
            raise ValueError(f"margin must be positive, got {margin}")
        if power not in (1, 2):
            raise ValueError(f"power must be 1 or 2, got {power}")
        self.definition, self.power = definition, power
        self.margin = margin if upper else math.inf

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        measure = unit_distance if self.power == 1 else unit_squared_distance
        dist = measure(embeddings, references)  # [N, M]
        if self.definition == "revisit":
            return self._one_per_anchor(dist, pos, neg)
        anchor, positive = pos.nonzero(as_tuple=True)
        rows = max(1, _ENTRIES // neg.shape[1])
        chunks = zip(anchor.split(rows), positive.split(rows), strict=True)
        select = self._nearest if self.definition == "facenet" else self._window
        result = [select(dist, neg, *chunk) for chunk in chunks]
        return Triplets(*(torch.cat(parts) for parts in zip(*result, strict=True)))

    def _one_per_anchor(self, dist: Tensor, pos: Tensor, neg: Tensor) -> Triplets:
        positive = draw_per_row(pos, self.generator)  # [N, 1]
        gap = dist - dist.gather(1, positive)  # [N, M]
        candidates = neg & (gap > 0) & (gap < self.margin)
        allowed = torch.where(candidates.any(dim=1, keepdim=True), candidates, neg)
        negative = draw_per_row(allowed, self.generator)
        valid = valid_anchors(pos, neg)
        return Triplets(valid, positive[valid, 0], negative[valid, 0])

    def _nearest(self, dist: Tensor, neg: Tensor, anchor: Tensor, positive: Tensor) -> Triplets:
        farther = neg[anchor] & (dist[anchor] > dist[anchor, positive][:, None])  # [P, M]
        nearest, negative = dist[anchor].masked_fill(~farther, math.inf).min(dim=1)
        exists = nearest < math.inf
        return Triplets(anchor[exists], positive[exists], negative[exists])

    def _window(self, dist: Tensor, neg: Tensor, anchor: Tensor, positive: Tensor) -> Triplets:
        gap = dist[anchor] - dist[anchor, positive][:, None]  # [P, M]
        pair, negative = (neg[anchor] & (gap > 0) & (gap <= self.margin)).nonzero(as_tuple=True)
        return Triplets(anchor[pair], positive[pair], negative)

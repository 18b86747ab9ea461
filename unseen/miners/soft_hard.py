"""Soft-hard miner."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.geometry import unit_squared_distance
from unseen.core.tuples import Triplets
from unseen.miners.base import TripletMiner, draw_per_row, valid_anchors


class SoftHardMiner(TripletMiner):
    """Soft-hard: hard positives and hard negatives, drawn at random among all that are hard.

    Formula:
        for each anchor a, distances d of unit embeddings:

            p uniform among positives with d(a,p) > smallest d(a,n)
            n uniform among negatives with d(a,n) < largest d(a,p)

        independently; an empty set falls back to all positives, all negatives of the anchor.
        (Equations 21 and 22 print arg max and arg min of distances, where the distances themselves
        are meant, and call the set of positives one of negatives.)

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Args:
        switch: probability that a triplet becomes (a, a, j), j another item of a's class (the rho
            switch of Roth et al. 2020).
        seed: of the draws.

    Use:
        triplet and margin losses; gentler than batch_hard on mislabelled items.

    Example:
        >>> import torch
        >>> from unseen.miners import SoftHardMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> triplets = SoftHardMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> len(triplets.anchor)
        4
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"revisit": {}, "revisit_code": {}}

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        dist = unit_squared_distance(embeddings, references)  # [N, M], only its order matters
        nearest_negative = dist.masked_fill(~neg, math.inf).amin(dim=1, keepdim=True)
        farthest_positive = dist.masked_fill(~pos, -math.inf).amax(dim=1, keepdim=True)
        positive = draw_per_row(_or_all(pos & (dist > nearest_negative), pos), self.generator)
        negative = draw_per_row(_or_all(neg & (dist < farthest_positive), neg), self.generator)
        valid = valid_anchors(pos, neg)
        return Triplets(valid, positive[valid, 0], negative[valid, 0])


def _or_all(hard: Tensor, every: Tensor) -> Tensor:  # bool [N, M]
    return torch.where(hard.any(dim=1, keepdim=True), hard, every)

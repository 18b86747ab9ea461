"""Batch-hard: each anchor with its farthest positive and its nearest negative.

Paper    A. Hermans et al., In Defense of the Triplet Loss for Person Re-Identification, 2017,
         https://arxiv.org/abs/1703.07737
Formula  for each anchor a, distances d of unit embeddings:

             p = argmax over positives of d(a,p),   n = argmin over negatives of d(a,n)

Values   none; nothing is random but the switch.
Use      triplet loss with large classes in the batch. Can collapse early in training: start with an
         easier miner, or use the smooth triplet loss.
"""

import math
from typing import Any, ClassVar

from torch import Tensor

from unseen.geometry import cosine
from unseen.miners.base import TripletMiner, valid_anchors
from unseen.tuples import Triplets


class BatchHard(TripletMiner):
    """One triplet for each anchor."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}}

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        sim = cosine(embeddings, references)  # [N, M], falls as the distance grows
        positive = sim.masked_fill(~pos, math.inf).argmin(dim=1)
        negative = sim.masked_fill(~neg, -math.inf).argmax(dim=1)
        valid = valid_anchors(pos, neg)
        return Triplets(valid, positive[valid], negative[valid])

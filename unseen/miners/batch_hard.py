"""Batch-hard miner."""

import math
from typing import Any, ClassVar

from torch import Tensor

from unseen.core.geometry import cosine
from unseen.core.tuples import Triplets
from unseen.miners.base import TripletMiner, valid_anchors


class BatchHardMiner(TripletMiner):
    """Batch-hard: each anchor with its farthest positive and its nearest negative.

    Formula:
        for each anchor a, distances d of unit embeddings:

            p = argmax over positives of d(a,p),   n = argmin over negatives of d(a,n)

    Paper:
        A. Hermans et al., In Defense of the Triplet Loss for Person Re-Identification, 2017,
        https://arxiv.org/abs/1703.07737

    Args:
        switch: probability that a triplet becomes (a, a, j), j another item of a's class (the rho
            switch of Roth et al. 2020).
        seed: of the switch; nothing else is random.

    Use:
        triplet loss with large classes in the batch. Can collapse early in training: start with an
        easier miner, or use the smooth triplet loss.

    Example:
        >>> import torch
        >>> from unseen.miners import BatchHardMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> triplets = BatchHardMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> [each.tolist() for each in triplets]
        [[0, 1, 2, 3], [1, 0, 3, 2], [3, 3, 1, 1]]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}}

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        sim = cosine(embeddings, references)  # [N, M], falls as the distance grows
        positive = sim.masked_fill(~pos, math.inf).argmin(dim=1)
        negative = sim.masked_fill(~neg, -math.inf).argmax(dim=1)
        valid = valid_anchors(pos, neg)
        return Triplets(valid, positive[valid], negative[valid])

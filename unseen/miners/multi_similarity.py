"""Multi-similarity miner."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.geometry import cosine
from unseen.core.tuples import Pairs, all_pairs
from unseen.miners.base import Miner


class MultiSimilarityMiner(Miner):
    """Multi-similarity: the pairs that are hard beside the anchor's hardest opposite pair.

    Formula:
        on cosine similarities S, for an anchor i:

            keep positive (i, p)  if  S[i,p] - epsilon < max over negatives n of S[i,n]
            keep negative (i, n)  if  S[i,n] + epsilon > min over positives p of S[i,p]

        An anchor without positives or without negatives keeps nothing. (Equation 11 of Roth et al.
        does not say which condition is for which pairs.)

    Paper:
        X. Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric
        Learning, CVPR 2019, https://arxiv.org/abs/1904.06627

    Args:
        epsilon: how much easier than the hardest opposite pair a kept pair may be; 0.1 (paper), 0.4
            tuned on a validation split in Psomas' thesis.
        seed: unused, nothing is random.

    Use:
        multi_similarity, lifted_structure or any other pair loss.

    Example:
        >>> import torch
        >>> from unseen.miners import MultiSimilarityMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> pairs = MultiSimilarityMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> [each.tolist() for each in pairs]
        [[1, 3], [0, 2], [1, 3], [3, 1]]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {},
        "thesis": {},
        "thesis_code": {"epsilon": 0.39},
        "thesis_tuned": {"epsilon": 0.4},
    }

    def __init__(self, epsilon: float = 0.1, seed: int = 0) -> None:
        super().__init__(seed)
        if epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {epsilon}")
        self.epsilon = epsilon

    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Pairs:
        sim = cosine(embeddings, references)  # [N, M]
        hardest_negative = torch.where(neg, sim, -math.inf).amax(dim=1, keepdim=True)
        hardest_positive = torch.where(pos, sim, math.inf).amin(dim=1, keepdim=True)
        return all_pairs(
            pos & (sim - self.epsilon < hardest_negative),
            neg & (sim + self.epsilon > hardest_positive),
        )

"""Every pair of the batch."""

from typing import Any, ClassVar

from torch import Tensor

from unseen.core.tuples import Pairs, all_pairs
from unseen.miners.base import Miner


class AllMiner(Miner):
    """All: every positive and every negative pair of the batch.

    Formula:
        all ordered pairs (i, j), i != j, positives where the labels agree and negatives elsewhere.

    Paper:
        H. O. Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016,
        https://arxiv.org/abs/1511.06452

    Args:
        seed: unused, nothing is random.

    Use:
        where a list of tuples is wanted, e.g. for a loss of another package; our losses do the
        same, faster, without a miner.

    Example:
        >>> import torch
        >>> from unseen.miners import AllMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> pairs = AllMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> [each.tolist() for each in pairs]
        [[0, 1, 2, 3], [1, 0, 3, 2], [0, 0, 1, 1, 2, 2, 3, 3], [2, 3, 2, 3, 0, 1, 0, 1]]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {},
        "density": {},
        "horde": {},
        "vo_hays": {},
    }

    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Pairs:
        return all_pairs(pos, neg)

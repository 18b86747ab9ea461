"""All: every positive and every negative pair of the batch.

Paper    H. O. Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016,
         https://arxiv.org/abs/1511.06452
Formula  all ordered pairs (i, j), i != j, positives where the labels agree and negatives elsewhere.
Values   none.
Use      where a list of tuples is wanted, e.g. for a loss of another package; our losses do the
         same, faster, without a miner.
"""

from typing import Any, ClassVar

from torch import Tensor

from unseen.miners.base import Miner
from unseen.tuples import Pairs, all_pairs


class All(Miner):
    """Nothing is random."""

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

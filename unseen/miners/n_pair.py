"""N-pair miner."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.tuples import Pairs, complete
from unseen.miners.base import Miner, draw_per_row, valid_anchors


class NPairMiner(Miner):
    """N-pair: each anchor with one positive and every negative of the batch.

    Formula:
        each anchor gets one uniform positive and all items of other classes. With `per_class`,
        each class gives one random anchor with one random positive, and its negatives are the
        positives of the other classes, as in the paper.

    Paper:
        K. Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS
        2016, https://papers.nips.cc/paper/6200

    Args:
        per_class: one pair for each class (the paper and Psomas' code) instead of one for each
            anchor (the code of Roth et al. 2020).
        seed: of the draws.

    Use:
        n_pair and angular losses.

    Example:
        >>> import torch
        >>> from unseen.miners import NPairMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> pairs = NPairMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> len(pairs.anchor)
        4
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {},
        "thesis": {"per_class": True},
        "thesis_code": {"per_class": True},
        "density": {"per_class": True},
    }

    def __init__(self, per_class: bool = False, seed: int = 0) -> None:
        super().__init__(seed)
        self.per_class = per_class

    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Pairs:
        if self.per_class:
            return self._pair_per_class(pos, neg)
        anchor = valid_anchors(pos, neg)
        positive = draw_per_row(pos[anchor], self.generator)[:, 0]
        place, negative = neg[anchor].nonzero(as_tuple=True)
        return Pairs(anchor, positive, anchor[place], negative)

    def _pair_per_class(self, pos: Tensor, neg: Tensor) -> Pairs:
        """A uniform choice of one anchor of each class and of its positive; the negatives of an
        anchor are the positives of all others."""
        first_of_class = neg.byte().argmin(dim=1)  # [N], the same for a whole class
        lot = torch.randperm(len(neg), generator=self.generator).to(neg.device)
        lot = lot.masked_fill_(~complete(pos, neg), -1)
        best = lot.new_zeros(neg.shape[1]).scatter_reduce_(0, first_of_class, lot, "amax")
        anchor = (best[first_of_class] == lot).nonzero()[:, 0]  # [C]
        column_lot = torch.randperm(neg.shape[1], generator=self.generator).to(neg.device)
        positive = torch.where(pos.index_select(0, anchor), column_lot, -1).argmax(dim=1)  # [C]
        num = len(anchor)
        if num < 2:  # every valid anchor has a negative, so classes are missing among the anchors
            return Pairs(anchor, positive, anchor[:0], positive[:0])
        # the entries beside the diagonal of a [C, C] table whose rows are the positives
        rows = anchor[:, None].expand(num, num - 1)
        others = positive.expand(num, num).flatten()[1:].view(num - 1, num + 1)[:, :-1]
        return Pairs(anchor, positive, rows.flatten(), others.flatten())

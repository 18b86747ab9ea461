"""N-pair: each anchor with one positive and every negative of the batch.

Paper    K. Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS
         2016, https://papers.nips.cc/paper/6200
Formula  each anchor gets one uniform positive and all items of other classes. With `per_class`,
         each class gives one random anchor with one random positive, and its negatives are the
         positives of the other classes, as in the paper.
Values   all anchors in the code of Roth et al. 2020; one pair per class in the paper and in Psomas'
         code.
Use      n_pair and angular losses.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.miners.base import Miner, draw_per_row, valid_anchors
from unseen.tuples import Pairs


class NPair(Miner):
    """per_class: one pair for each class instead of one for each anchor."""

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
        anchor = valid_anchors(pos, neg)
        if self.per_class:
            anchor = self._one_per_class(anchor, neg)  # [C]
        positive = draw_per_row(pos[anchor], self.generator)[:, 0]
        if not self.per_class:
            place, negative = neg[anchor].nonzero(as_tuple=True)
            return Pairs(anchor, positive, anchor[place], negative)
        place, other = neg[anchor][:, positive].nonzero(as_tuple=True)
        return Pairs(anchor, positive, anchor[place], positive[other])

    def _one_per_class(self, anchor: Tensor, neg: Tensor) -> Tensor:  # [C]
        """A uniform choice of one anchor of each class."""
        first_of_class = neg[anchor].byte().argmin(dim=1)  # [A], the same for a whole class
        lot = torch.randperm(len(anchor), generator=self.generator).to(anchor.device)
        best = lot.new_zeros(neg.shape[1]).scatter_reduce_(0, first_of_class, lot, "amax")
        return anchor[best[first_of_class] == lot]

"""Quadruplet loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.core.comparison import Comparison
from unseen.core.geometry import unit_distance
from unseen.core.relevance import differ
from unseen.losses.base import Loss, check_choice, check_not_negative
from unseen.miners.base import draw_per_row

# entries of [triplets, references] at a time; where there are more, they are computed again for the
# gradient instead of kept
BLOCK = 1 << 22


class QuadrupletLoss(Loss):
    """Quadruplet: a triplet, and the positive pair also closer than two items of two other classes.

    Formula:
        Euclidean distances d of unit embeddings, l of a class that is neither a's nor n's:

            L = mean over (a, p, n) of   [d(a,p) - d(a,n) + margin]+
                                       + [d(a,p) - d(n,l) + fourth_margin]+

        `fourth="all"` averages the second term over every such l, which is what drawing one at
        `"random"` comes to on average. With fewer than three classes the second term is 0.
        (Equation 14 of Roth et al. has d(a,n) in the second hinge, where d(a,p) is meant; their
        code lets l share a class with a or n and compares each n with every l.)

    Paper:
        W. Chen et al., Beyond Triplet Loss: A Deep Quadruplet Network for Person
        Re-Identification, CVPR 2017, https://arxiv.org/abs/1704.01719

    Args:
        margin: of the triplet; 1 (Roth et al.; 0.2 in their code).
        fourth_margin: against the pair (n, l); 0.5 (Roth et al.; 0.2 in their code).
        fourth: "all" averages over every fourth item, "random" draws one.
        seed: of the drawing.

    Use:
        m_per_class sampler; distance_weighted miner. Without a miner the time grows with the
        number of triplets times the batch size.

    Example:
        >>> import torch
        >>> from unseen.losses import QuadrupletLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = QuadrupletLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.761
    """

    usual_miner = "distance_weighted"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"margin": 0.2, "fourth_margin": 0.2},
    }

    def __init__(
        self, margin: float = 1.0, fourth_margin: float = 0.5, fourth: str = "all", seed: int = 0
    ) -> None:
        super().__init__()
        check_not_negative(margin=margin, fourth_margin=fourth_margin)
        check_choice("fourth", fourth, ("all", "random"))
        self.margin, self.fourth_margin, self.fourth = margin, fourth_margin, fourth
        self.generator = torch.Generator().manual_seed(seed)

    def on_comparison(self, batch: Comparison) -> Tensor:
        near, far = batch.triplet_sides(unit_distance)  # [T]
        anchor, _, negative = batch.triplets()
        references = batch.embeddings if batch.ref_embeddings is None else batch.ref_embeddings
        if len(negative) >= len(references):  # every reference's row, once
            rows, row = unit_distance(references), negative
        else:
            rows = unit_distance(references.index_select(0, negative), references)
            row = torch.arange(len(negative), device=negative.device)
        total = (near - far + self.margin).clamp(min=0).sum()
        size = max(1, BLOCK // max(1, len(references)))
        for block in torch.arange(len(anchor), device=anchor.device).split(size):
            fourth = self._fourth(batch, anchor[block], negative[block])
            arguments = (rows, row[block], near[block], fourth)
            if len(anchor) <= size:
                total = total + self._against_fourth(*arguments)
            else:
                total = total + checkpoint(self._against_fourth, *arguments, use_reentrant=False)
        return total / max(1, len(anchor))

    def _fourth(self, batch: Comparison, anchor: Tensor, negative: Tensor) -> Tensor:  # [T, M]
        """Who may be the fourth item of each triplet, or who was drawn."""
        references = batch.labels if batch.ref_labels is None else batch.ref_labels
        allowed = batch.different(anchor) & differ(references[negative], references)
        if self.fourth == "all":
            return allowed
        drawn = draw_per_row(allowed, self.generator)  # [T, 1]
        return torch.zeros_like(allowed).scatter_(1, drawn, True) & allowed

    def _against_fourth(self, rows: Tensor, row: Tensor, near: Tensor, fourth: Tensor) -> Tensor:
        far = rows.index_select(0, row)  # [T, M]
        hinge = (near[:, None] - far + self.fourth_margin).clamp(min=0)
        return (hinge.masked_fill(~fourth, 0.0).sum(dim=1) / fourth.sum(dim=1).clamp(min=1)).sum()

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state)

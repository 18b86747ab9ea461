"""Contrastive loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.comparison import Comparison, Side
from unseen.core.geometry import UNIT_DISTANCES
from unseen.core.hinges import hinge_sum
from unseen.losses.base import Loss, check_choice, check_not_negative, check_positive

WHOLE = ("anchors", "sum")  # of both sides at once
REDUCTIONS = ("mean", "active", "active_negatives", *WHOLE)


class ContrastiveLoss(Loss):
    """Contrastive: positive pairs closer than one margin, negative pairs farther than another.

    Formula:
        distance D of unit embeddings: Euclidean, its square, or `cosine` = 1 - cos:

            L = factor * ( reduce over positives of [D - pos_margin]+ ^ positive_power
                         + reduce over negatives of [neg_margin - D]+ )

        `reduction`: "mean" of each side; "active", the mean of each side's terms above 0;
        "active_negatives", positives by the first and negatives by the second; "anchors", the sum
        of both sides over the number of anchors; "sum" of both sides, each pair of a batch once.
        (Equation 1 of Roth et al. prints one minus the
        second indicator; Li et al. call the squared distance Euclidean.)

    Paper:
        R. Hadsell, S. Chopra, Y. LeCun, Dimensionality Reduction by Learning an Invariant Mapping,
        CVPR 2006, https://doi.org/10.1109/CVPR.2006.100

    Args:
        distance: euclidean, squared or cosine; the margins are measured in it. Squared (Li et al.,
            the sum); cosine (Psomas; his code: Euclidean). A threshold m on the cosine is
            neg_margin 1 - m here.
        pos_margin: positives nearer than this cost nothing; 0 (Roth et al.).
        neg_margin: negatives farther than this cost nothing; 1 on mined triplets (Roth et al.), 1
            on the square (Li et al.), cosine threshold 0.5 (Psomas; his code: Euclidean 0.5), 0.5
            (Jacob et al.).
        reduction: mean, active, active_negatives, anchors or sum, see the formula; "active" in the
            code of Psomas; "sum" as Li et al. print it.
        positive_power: 2 squares the positives' hinge (Jacob et al.).
        factor: of the whole; 1/2 (Jacob et al.).

    Use:
        m_per_class sampler; distance_weighted miner, with or without the switch, or none.

    Example:
        >>> import torch
        >>> from unseen.losses import ContrastiveLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = ContrastiveLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.865
    """

    one_sided = True
    usual_miner = "distance_weighted"
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {
        "thesis": None,
        "thesis_code": None,
        "density": None,
        "horde": None,
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {},
        "thesis": {"distance": "cosine", "neg_margin": 0.5, "reduction": "anchors"},
        "thesis_code": {"neg_margin": 0.5, "reduction": "active"},
        "density": {"distance": "squared", "reduction": "sum"},
        "horde": {
            "distance": "cosine",
            "neg_margin": 0.5,
            "reduction": "active_negatives",
            "positive_power": 2,
            "factor": 0.5,
        },
    }

    def __init__(
        self,
        distance: str = "euclidean",
        pos_margin: float = 0.0,
        neg_margin: float = 1.0,
        reduction: str = "mean",
        positive_power: int = 1,
        factor: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("distance", distance, list(UNIT_DISTANCES))
        check_choice("reduction", reduction, REDUCTIONS)
        check_choice("positive_power", positive_power, (1, 2))
        check_not_negative(pos_margin=pos_margin, neg_margin=neg_margin)
        check_positive(factor=factor)
        self.measure, self.reduction = UNIT_DISTANCES[distance], reduction
        self.pos_margin, self.neg_margin = pos_margin, neg_margin
        self.positive_power, self.factor = positive_power, factor

    def on_comparison(self, batch: Comparison) -> Tensor:
        if batch.tuples is None and self.positive_power == 1:
            return batch.matrix_loss(self.measure, self._on_matrix, self._slope)
        return self._on_sides(*batch.sides(self.measure), len(batch.labels))

    def _on_matrix(self, dist: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        row = torch.arange(len(dist), device=dist.device)[:, None]
        positive, negative = (Side(dist, mask.to(dist.dtype), row) for mask in (pos, neg))
        return self._on_sides(positive, negative, len(dist))

    def _slope(self, dist: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the distances, in numbers that count once."""
        pull, pull_slope = _hinge(dist - self.pos_margin, pos)
        push, push_slope = _hinge(self.neg_margin - dist, neg)
        if self.reduction in WHOLE:
            weight = self._weight(len(dist))
            return (pull + push) * weight, pull_slope.sub_(push_slope).mul_(weight)
        by_active = self.reduction == "active"
        num_pull = (pull_slope if by_active else pos).sum().clamp_(min=1)
        num_push = (neg if self.reduction == "mean" else push_slope).sum().clamp_(min=1)
        pull_weight, push_weight = self.factor / num_pull, self.factor / num_push
        slope = pull_slope.mul_(pull_weight).sub_(push_slope.mul_(push_weight))
        return pull * pull_weight + push * push_weight, slope

    def _weight(self, num_anchors: int) -> float:
        """Of both sides' sums; an anchor's pair is also its partner's."""
        return self.factor / (2 if self.reduction == "sum" else max(1, num_anchors))

    def _on_sides(self, positive: Side, negative: Side, num_anchors: int) -> Tensor:
        push, active_push = hinge_sum(negative.values, self.neg_margin, negative.counts, below=True)
        pull, active_pull = hinge_sum(positive.values, self.pos_margin, positive.counts)
        if self.positive_power == 2:
            terms = (positive.values - self.pos_margin).clamp(min=0).square()
            pull = (terms * positive.counts).sum()
        if self.reduction in WHOLE:
            return self._weight(num_anchors) * (pull + push)
        num_pull = active_pull if self.reduction == "active" else positive.counts.sum()
        num_push = negative.counts.sum() if self.reduction == "mean" else active_push
        return self.factor * (pull / num_pull.clamp(min=1) + push / num_push.clamp(min=1))


def _hinge(gaps: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:  # scalar, [N, M]
    """The sum of the gaps above 0 that count, and which they are."""
    gaps.relu_().mul_(counts)
    return gaps.sum(), gaps.sign_()

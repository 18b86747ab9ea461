"""Contrastive: positive pairs closer than one margin, negative pairs farther than another.

Paper    R. Hadsell, S. Chopra, Y. LeCun, Dimensionality Reduction by Learning an Invariant Mapping,
         CVPR 2006, https://doi.org/10.1109/CVPR.2006.100
Formula  distance D of unit embeddings: Euclidean, its square, or `cosine` = 1 - cos:

             L = factor * ( reduce over positives of [D - pos_margin]+ ^ positive_power
                          + reduce over negatives of [neg_margin - D]+ )

         `reduction`: "mean" of each side; "active", the mean of each side's terms above 0;
         "active_negatives", positives by the first and negatives by the second; "anchors", the sum of
         both sides over the number of anchors.
Values   margins 0 and 1 on mined triplets (Roth et al.); 1 on the square (Li et al., who print a sum);
         cosine threshold 0.5 (Psomas; his code: Euclidean 0.5, active terms); 0.5 with squared
         positives and factor 1/2 (Jacob et al.). A threshold m on the cosine is neg_margin 1 - m here.
Use      samples_per_class sampler; distance_weighted miner, with or without the switch, or none.
"""

from typing import Any, ClassVar

from torch import Tensor

from unseen.geometry import UNIT_DISTANCES, active_mean, weighted_mean
from unseen.losses.base import (
    Comparison,
    Loss,
    check_choice,
    check_not_negative,
    check_positive,
)


class Contrastive(Loss):
    """distance: euclidean, squared or cosine; the margins are measured in it."""

    one_sided = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {},
        "thesis": {"distance": "cosine", "neg_margin": 0.5, "reduction": "anchors"},
        "thesis_code": {"neg_margin": 0.5, "reduction": "active"},
        "density": {"distance": "squared"},
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
        check_choice("reduction", reduction, ("mean", "active", "active_negatives", "anchors"))
        check_choice("positive_power", positive_power, (1, 2))
        check_not_negative(pos_margin=pos_margin, neg_margin=neg_margin)
        check_positive(factor=factor)
        self.measure, self.reduction = UNIT_DISTANCES[distance], reduction
        self.pos_margin, self.neg_margin = pos_margin, neg_margin
        self.positive_power, self.factor = positive_power, factor

    def price(self, batch: Comparison) -> Tensor:
        dist = batch.matrix(self.measure)  # [N, M]
        positive, negative = batch.pair_counts()
        pull = (dist - self.pos_margin).clamp(min=0)
        if self.positive_power == 2:
            pull = pull.square()
        push = (self.neg_margin - dist).clamp(min=0)
        if self.reduction == "anchors":
            total = ((pull * positive).sum() + (push * negative).sum()) / max(1, len(dist))
            return self.factor * total
        of_positives = active_mean if self.reduction == "active" else weighted_mean
        of_negatives = weighted_mean if self.reduction == "mean" else active_mean
        return self.factor * (of_positives(pull, positive) + of_negatives(push, negative))

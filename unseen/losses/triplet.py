"""Triplet loss."""

from typing import Any, ClassVar

from torch import Tensor

from unseen.core.comparison import Comparison
from unseen.core.geometry import UNIT_DISTANCES
from unseen.losses.base import Loss, check_choice, check_not_negative


class TripletLoss(Loss):
    """Triplet: the positive closer than the negative, by a margin.

    Formula:
        distance D of unit embeddings: `squared` Euclidean, `euclidean`, or `cosine` = 1 - cos:

            L = reduce over triplets (a, p, n) of [D(a,p) - D(a,n) + margin]+

        `reduction`: "mean" over the triplets, or over the "active" ones, those above 0, or "sum"
        of all. A margin g
        on the square is a margin g/2 on the cosine. (Section 3.1 of Roth et al. turns the sign
        around: a triplet is active while D(a,n) - D(a,p) is below the margin.)

    Paper:
        F. Schroff et al., FaceNet: A Unified Embedding for Face Recognition and Clustering, CVPR
        2015, https://arxiv.org/abs/1503.03832

    Args:
        margin: by how much, in the chosen distance, the negative is to be farther; 0.2 (Roth et
            al.), 1 on the square (Li et al.), 0.1 on the cosine (Psomas).
        distance: squared (the code of Roth et al.; Li et al.), euclidean (Roth et al.; the code of
            Psomas) or cosine (Psomas).
        reduction: mean, active (the code of Psomas; Jacob et al.) or sum (Li et al.).

    Use:
        m_per_class sampler; any triplet miner, with or without the switch, or none.

    Example:
        >>> import torch
        >>> from unseen.losses import TripletLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = TripletLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.13
    """

    usual_miner = "distance_weighted"
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {
        "thesis": ("semi_hard", "thesis"),
        "thesis_code": ("semi_hard", "thesis_code"),
        "density": None,
        "horde": None,
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"distance": "euclidean"},
        "revisit_code": {},
        "thesis": {"margin": 0.1, "distance": "cosine"},
        "thesis_code": {"margin": 0.1, "distance": "euclidean", "reduction": "active"},
        "density": {"margin": 1.0, "reduction": "sum"},
        "horde": {"margin": 0.1, "distance": "cosine", "reduction": "active"},
    }

    def __init__(
        self, margin: float = 0.2, distance: str = "squared", reduction: str = "mean"
    ) -> None:
        super().__init__()
        check_choice("distance", distance, list(UNIT_DISTANCES))
        check_choice("reduction", reduction, ("mean", "active", "sum"))
        check_not_negative(margin=margin)
        self.margin, self.reduction = margin, reduction
        self.measure = UNIT_DISTANCES[distance]

    def on_comparison(self, batch: Comparison) -> Tensor:
        is_of_active = self.reduction == "active"
        mean = batch.triplet_mean(self.measure, self.margin, of_active=is_of_active)
        return mean * batch.num_triplets() if self.reduction == "sum" else mean

"""Generalized contrastive loss."""

from torch import Tensor

from unseen.core.geometry import unit_distance
from unseen.losses.base import GradedLoss, check_positive


class GeneralizedContrastiveLoss(GradedLoss):
    """Generalized contrastive: each pair is pulled and pushed at once, as far as it is the same.

    Formula:
        for a pair (i, j) with grade g in [0, 1] and unit vectors at distance d:

            L(i, j) = g d^2 / 2 + (1 - g) [margin - d]+^2 / 2

        averaged over all pairs that count. With classes it is the contrastive loss with squared
        hinges.

    Paper:
        M. Leyva-Vallina et al., Data-Efficient Large Scale Place Recognition with Graded
        Similarity Supervision, CVPR 2023, https://arxiv.org/abs/2303.11739

    Args:
        margin: how far apart items that have nothing in common are to be; 1 as in contrastive, 0.5
            in the paper.

    Use:
        label sets, levels or grades; m_per_class, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import GeneralizedContrastiveLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = GeneralizedContrastiveLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.111
    """

    measure = staticmethod(unit_distance)
    one_sided = True

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        check_positive(margin=margin)
        self.margin = margin

    def on_grades(self, dist: Tensor, grades: Tensor, counted: Tensor) -> Tensor:  # three [N, M]
        pull = grades * dist.square()
        push = (1 - grades) * (self.margin - dist).clamp(min=0).square()
        costs = (pull + push).masked_fill(~counted, 0.0) / 2
        return costs.sum() / counted.sum().clamp(min=1)

"""SupCon, the supervised contrastive loss."""

import torch
from torch import Tensor

from unseen.core.geometry import among, log_sum_exp, masked_mean, soft_maximum
from unseen.core.tuples import complete
from unseen.losses.base import MatrixLoss


class SupconLoss(MatrixLoss):
    """SupCon: each positive against the whole batch, averaged over the anchor's positives.

    Formula:
        for an anchor a, positives P(a), all others A(a), cosine similarities S:

            L(a) = -mean over p in P(a) of log( exp(S[a,p] / temperature)
                                                / sum over j in A(a) of exp(S[a,j] / temperature) )

        averaged over anchors that have a positive and a negative.

    Paper:
        P. Khosla et al., Supervised Contrastive Learning, NeurIPS 2020,
        https://arxiv.org/abs/2004.11362

    Args:
        temperature: divides the cosines, small ones weigh hard pairs more; 0.1, 0.07 in the paper.

    Use:
        m_per_class sampler with at least 2 per class, large batches or a memory.

    Example:
        >>> import torch
        >>> from unseen.losses import SupconLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SupconLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.967
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        pull = torch.where(pos, sim, 0.0).sum(dim=1) / pos.sum(dim=1).clamp(min=1)  # [N]
        push = log_sum_exp(sim, where=pos | neg, scale=1 / self.temperature)  # [N]
        return masked_mean(push - pull / self.temperature, where=complete(pos, neg))

    def slope(self, sim: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the similarities."""
        num_pos, num_neg = pos.sum(dim=1, keepdim=True), neg.sum(dim=1, keepdim=True)  # [N, 1]
        counted = torch.maximum(pos, neg)  # a pair may be both, by the switch
        push, fractions = soft_maximum(among(counted).add_(sim, alpha=1 / self.temperature))
        wanted = pos / num_pos.clamp(min=1)  # [N, M]
        has_both = torch.minimum(num_pos, num_neg).clamp_(max=1)
        weight = has_both / has_both.sum().clamp(min=1)
        slope = fractions.sub_(wanted).mul_(weight / self.temperature)
        pull = torch.dot((wanted * weight).flatten(), sim.flatten())
        return torch.dot(push[:, 0], weight[:, 0]) - pull / self.temperature, slope

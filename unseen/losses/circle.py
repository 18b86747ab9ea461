"""Circle loss."""

import torch.nn.functional as F
from torch import Tensor

from unseen.core.geometry import OFF, among, log_sum_exp, masked_mean, soft_maximum
from unseen.core.tuples import complete
from unseen.losses.base import MatrixLoss


class CircleLoss(MatrixLoss):
    """Circle: pairs far from their ideal similarity move faster than those already near it.

    Formula:
        for an anchor a, positives P(a), negatives N(a), cosine similarities S, m the margin; the
        weights [1 + m - S]+ and [S + m]+ count as constants in the gradient:

            L(a) = log(1 + sum over p of exp(-gamma * [1 + m - S[a,p]]+ * (S[a,p] - (1 - m)))
                         * sum over n of exp( gamma * [S[a,n] + m]+     * (S[a,n] - m)) )

        averaged over anchors that have a positive and a negative.

    Paper:
        Y. Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization, CVPR
        2020, https://arxiv.org/abs/2002.10857

    Args:
        margin: the relaxation of both ideals, 1 and 0; 0.4 for retrieval (paper), 0.25 for faces.
        gamma: sharpness; 80 for retrieval (paper), 256 for faces.

    Use:
        m_per_class sampler with at least 2 per class.

    Example:
        >>> import torch
        >>> from unseen.losses import CircleLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = CircleLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        28.865
    """

    exact_gradient = False  # the weights are detached

    def __init__(self, margin: float = 0.4, gamma: float = 80.0) -> None:
        super().__init__()
        if not 0 <= margin <= 1:
            raise ValueError(f"margin must be 0 to 1, got {margin}")
        if gamma <= 0:
            raise ValueError(f"gamma must be positive, got {gamma}")
        self.margin, self.gamma = margin, gamma

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        constant = sim.detach()
        pull_weight = 1 + self.margin - constant  # no cosine makes it negative
        push_weight = (constant + self.margin).clamp(min=0)
        pull = log_sum_exp(-self.gamma * pull_weight * (sim - (1 - self.margin)), where=pos)  # [N]
        push = log_sum_exp(self.gamma * push_weight * (sim - self.margin), where=neg)  # [N]
        return masked_mean(F.softplus(pull + push), where=complete(pos, neg))

    def slope(self, sim: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the similarities."""
        pull_slope = (sim - (1 + self.margin)).mul_(self.gamma)  # minus the weight, times gamma
        push_slope = (sim + self.margin).clamp_(min=0).mul_(self.gamma)
        pull, near = soft_maximum(among(pos).addcmul_(pull_slope, sim - (1 - self.margin)))
        push, far = soft_maximum(among(neg).addcmul_(push_slope, sim - self.margin))
        exponents = pull.add_(push)  # [N, 1]
        num = (exponents > -OFF / 2).sum().clamp(min=1)  # those with both
        weight = exponents.sigmoid() / num
        slope = near.mul_(pull_slope).addcmul_(far, push_slope).mul_(weight)
        return F.softplus(exponents).sum() / num, slope

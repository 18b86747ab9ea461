"""SupCon loss with graded positives."""

import torch
from torch import Tensor

from unseen.core.geometry import log_sum_exp, masked_mean
from unseen.losses.base import GradedLoss, check_positive, differs_significantly


class GradedSupconLoss(GradedLoss):
    """Graded SupCon: SupCon in which each positive weighs as much as it is the same, 0 to 1.

    Formula:
        for an anchor a, all others A(a), grades g, cosine similarities S:

            L(a) = -sum over p in A(a) of w[a,p] log( exp(S[a,p] / temperature)
                                             / sum over j in A(a) of exp(S[a,j] / temperature) )
            w[a,p] = g[a,p] / sum over j in A(a) of g[a,j]

        averaged over anchors that have a related item, and others that are less related. (The
        paper does not divide by the sum: anchors with many relatives weigh more there.) With
        classes it is SupCon.

    Paper:
        N. Lin et al., An Effective Deployment of Contrastive Learning in Multi-label Text
        Classification, Findings of ACL 2023, https://arxiv.org/abs/2212.00552: supervised
        contrastive learning of texts with several labels, weighed by Jaccard's index

    Args:
        temperature: divides the cosines, small ones weigh hard pairs more; 0.1 as in supcon.

    Use:
        label sets, levels or grades; large batches or a memory.

    Example:
        >>> import torch
        >>> from unseen.losses import GradedSupconLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = GradedSupconLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.967
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        check_positive(temperature=temperature)
        self.temperature = temperature

    def on_grades(self, sim: Tensor, grades: Tensor, counted: Tensor) -> Tensor:  # three [N, M]
        total = grades.sum(dim=1)  # [N]
        pull = (torch.where(counted, sim, 0.0) * grades).sum(dim=1) / total.clamp(min=1e-12)
        push = log_sum_exp(sim, where=counted, scale=1 / self.temperature)  # [N]
        return masked_mean(
            push - pull / self.temperature, where=differs_significantly(grades, counted)
        )

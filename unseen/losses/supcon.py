"""SupCon: each positive against everything else of the batch, averaged over the anchor's positives.

Paper    P. Khosla et al., Supervised Contrastive Learning, NeurIPS 2020,
         https://arxiv.org/abs/2004.11362
Formula  for an anchor a, positives P(a), all others A(a), cosine similarities S:

             L(a) = -mean over p in P(a) of log( exp(S[a,p] / temperature)
                                                 / sum over j in A(a) of exp(S[a,j] / temperature) )

         averaged over anchors that have a positive and a negative.
Values   temperature 0.1; 0.07 in the paper.
Use      samples_per_class sampler with at least 2 per class, large batches or a memory.
"""

import torch
from torch import Tensor

from unseen.geometry import log_sum_exp, masked_mean
from unseen.losses.base import MatrixLoss
from unseen.tuples import complete


class Supcon(MatrixLoss):
    """temperature: divides the cosines; small ones weigh hard pairs more."""

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        pull = torch.where(pos, sim, 0.0).sum(dim=1) / pos.sum(dim=1).clamp(min=1)  # [N]
        push = log_sum_exp(sim, where=pos | neg, scale=1 / self.temperature)  # [N]
        return masked_mean(push - pull / self.temperature, where=complete(pos, neg))

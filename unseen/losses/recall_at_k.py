"""Recall@k surrogate loss."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unseen.core.geometry import masked_mean
from unseen.core.tuples import complete
from unseen.losses.base import MatrixLoss
from unseen.losses.smooth_ap import mean_per_query, positive_ranks


class RecallAtKLoss(MatrixLoss):
    """Recall@k: one minus a differentiable recall among the k nearest, averaged over several k.

    Formula:
        for a query i, positives P(i), cosine similarities S, sig(z) = 1 / (1 + exp(-z)):

            rank(i,p) = 1 + sum over others j of sig((S[i,j] - S[i,p]) / rank_temperature)
            R(i,k)    = mean over p in P(i) of sig((k - rank(i,p)) / recall_temperature)

        L = 1 - mean of R over the ks and the queries that have a positive and a negative; the
        query itself is in no sum. `cap` divides by min(k, |P(i)|) instead of |P(i)|, so that a
        perfect ranking of a large class can reach recall 1.

    Paper:
        Y. Patel et al., Recall@k Surrogate Loss with Large Batches and Similarity Mixup, CVPR
        2022, https://arxiv.org/abs/2108.11179

    Args:
        ks: depths; 1, 2, 4, 8, 16 (paper).
        rank_temperature: smooths the ranks; 0.01 (paper).
        recall_temperature: smooths the step at rank k; 1 (paper).
        cap: divide by min(k, |P(i)|) instead of |P(i)|.

    Use:
        m_per_class sampler with at least 4 per class, and batches as large as possible.

    Example:
        >>> import torch
        >>> from unseen.losses import RecallAtKLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = RecallAtKLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.217
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 2, 4, 8, 16),
        rank_temperature: float = 0.01,
        recall_temperature: float = 1.0,
        cap: bool = False,
    ) -> None:
        super().__init__()
        if not ks or min(ks) < 1:
            raise ValueError(f"ks must be numbers of at least 1, got {ks}")
        if rank_temperature <= 0 or recall_temperature <= 0:
            raise ValueError(
                "rank_temperature and recall_temperature must be positive, "
                f"got {rank_temperature} and {recall_temperature}"
            )
        self.ks, self.cap = tuple(ks), cap
        self.rank_temperature, self.recall_temperature = rank_temperature, recall_temperature

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        query, _, rank = positive_ranks(sim, pos, neg, self.rank_temperature)  # [P]
        ks = sim.new_tensor(self.ks)  # [K]
        result = torch.sigmoid((ks - rank[:, None]) / self.recall_temperature)  # [P, K]
        if self.cap:
            num_positives = pos.sum(dim=1)[query][:, None]  # [P, 1]
            result = result * num_positives / torch.minimum(num_positives, ks)
        recall = mean_per_query(result.mean(dim=1), query, pos)  # [N]
        return masked_mean(1 - recall, where=complete(pos, neg))

"""Hierarchical Smooth-AP loss."""

import torch
from torch import Tensor

from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import masked_mean
from unseen.losses.base import GradedLoss, check_positive, differs_significantly
from unseen.losses.smooth_ap import blocks


class HierarchicalSmoothApLoss(GradedLoss):
    """Hierarchical Smooth-AP: one minus a differentiable H-AP of every item's ranking of the batch.

    Formula:
        for a query i, its related items K (grade above 0), cosine similarities S, sig(z) = 1 / (1
        + exp(-z / temperature)), relevance r(k) = grade(k)^alpha / number of items with k's grade:

            H-rank(k) = r(k) + sum over other j in K of min(r(j), r(k)) sig(S[i,j] - S[i,k])
            rank(k)   = 1    + sum over all others j of sig(S[i,j] - S[i,k])
            H-AP(i)   = sum over K of H-rank(k) / rank(k), over the sum over K of r(k)

        L = 1 - mean of H-AP over queries that have a related item, and others that are less
        related. With classes it is Smooth-AP.

    Paper:
        E. Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval,
        ECCV 2022, https://arxiv.org/abs/2207.04873 (H-AP); the steps are smoothed as in A. Brown
        et al., Smooth-AP, ECCV 2020, not by the paper's own surrogate, an upper bound in several
        pieces

    Args:
        temperature: how sharply the sigmoid counts who ranks higher; 0.01 (Smooth-AP).
        alpha: how much more the finer grades count; 1 (the paper's metric), larger ones weigh fine
            levels more.

    Use:
        levels, label sets or grades; large batches that hold several items of each level.

    Example:
        >>> import torch
        >>> from unseen.losses import HierarchicalSmoothApLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = HierarchicalSmoothApLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.25
    """

    def __init__(self, temperature: float = 0.01, alpha: float = 1.0) -> None:
        super().__init__()
        check_positive(temperature=temperature, alpha=alpha)
        self.temperature, self.alpha = temperature, alpha

    def on_grades(self, sim: Tensor, grades: Tensor, counted: Tensor) -> Tensor:  # three [N, M]
        query, item = ((grades > 0) & counted).nonzero(as_tuple=True)  # [P]
        relevance = torch.zeros_like(grades)
        for _, q, k in blocks(query, item, sim.shape[1]):
            alike = (grades[q] == grades[q, k][:, None]) & counted[q]
            relevance[q, k] = grades[q, k] ** self.alpha / alike.sum(dim=1)
        fractions = self._fractions(sim, relevance, counted, query, item)
        total = sim.new_zeros(len(sim))
        total = total.index_add(0, query, fractions)
        precision = total / relevance.sum(dim=1).clamp(min=1e-12)  # [N]
        return (
            masked_mean(1 - precision, where=differs_significantly(grades, counted)) + 0 * sim.sum()
        )

    def _fractions(
        self, sim: Tensor, relevance: Tensor, counted: Tensor, query: Tensor, item: Tensor
    ) -> Tensor:  # [P]
        """H-rank over rank of each related item."""

        def formula(sim: Tensor) -> Tensor:  # in memory of [P, M]
            return self._fraction(self._above(sim, counted, query, item), relevance, query, item)[0]

        def written(sim: Tensor) -> tuple[Tensor, Back]:  # nothing of size P x M is kept
            result = sim.new_empty(len(query))
            for block, q, k in blocks(query, item, sim.shape[1]):
                result[block] = self._fraction(self._above(sim, counted, q, k), relevance, q, k)[0]

            def back(grad: Tensor) -> tuple[Tensor]:  # [P]
                on_sim = torch.zeros_like(sim)
                for block, q, k in blocks(query, item, sim.shape[1]):
                    above = self._above(sim, counted, q, k)
                    fraction, least, rank = self._fraction(above, relevance, q, k)
                    slope = (least - fraction[:, None]) * above * (1 - above) / self.temperature
                    slope = slope * (grad[block] / rank)[:, None]
                    on_sim.index_add_(0, q, slope)
                    on_sim[q, k] -= slope.sum(dim=1)
                return (on_sim,)

            return result, back

        fractions: Tensor = differentiable(formula, written, sim)
        return fractions

    def _above(self, sim: Tensor, counted: Tensor, query: Tensor, item: Tensor) -> Tensor:  # [B, M]
        """Who ranks higher than some related items, and by how much of a step."""
        above = torch.sigmoid((sim[query] - sim[query, item][:, None]) / self.temperature)
        return above.masked_fill(~counted[query], 0.0).scatter(1, item[:, None], 0.0)

    def _fraction(
        self, above: Tensor, relevance: Tensor, query: Tensor, item: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # [B], [B, M], [B]
        """H-rank over rank, what each item may add to the H-rank, and the rank."""
        own = relevance[query, item]
        least, rank = torch.minimum(relevance[query], own[:, None]), 1 + above.sum(dim=1)
        return (own + (least * above).sum(dim=1)) / rank, least, rank

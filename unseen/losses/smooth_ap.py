"""Smooth-AP loss."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import masked_mean
from unseen.core.tuples import complete
from unseen.losses.base import MatrixLoss

_ENTRIES = 2**18  # of one block of pairs by references: bounds the memory and stays in the cache


class SmoothApLoss(MatrixLoss):
    """Smooth-AP: one minus a differentiable average precision of every item's ranking of the batch.

    Formula:
        for a query i, positives P(i), cosine similarities S, sig(z) = 1 / (1 + exp(-z /
        temperature)):

            AP(i) = mean over p in P(i) of (1 + sum over other positives q of sig(S[i,q] - S[i,p]))
                                         / (1 + sum over all others j of sig(S[i,j] - S[i,p]))

        L = 1 - mean of AP over queries that have a positive and a negative; the query itself is in
        no sum.

    Paper:
        A. Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV
        2020, https://arxiv.org/abs/2007.12163

    Args:
        temperature: how sharply the sigmoid counts who ranks higher; 0.01 (paper).

    Use:
        m_per_class sampler with at least 4 per class, large batches. Any class sizes, any
        order.

    Example:
        >>> import torch
        >>> from unseen.losses import SmoothApLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SmoothApLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.25
    """

    def __init__(self, temperature: float = 0.01) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        query, among_positives, among_all = positive_ranks(sim, pos, neg, self.temperature)
        precision = mean_per_query(among_positives / among_all, query, pos)  # [N]
        return masked_mean(1 - precision, where=complete(pos, neg))


def positive_ranks(
    sim: Tensor, pos: Tensor, neg: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:  # three [P]
    """For each positive pair its query and the smooth rank of its positive, among the query's
    positives and among all its pairs. Differentiable in the similarities."""
    query, positive = pos.nonzero(as_tuple=True)
    counted = pos | neg

    def formula(sim: Tensor) -> Tensor:  # in memory of [P, M]
        above = _above(sim, query, positive, temperature)
        masks = torch.stack([pos[query], counted[query]]).to(sim.dtype)  # [2, P, M]
        # the positive's own entry is sig(0) = 1/2 where the rank wants 1
        return (above * masks).sum(dim=2) + 0.5

    def written(sim: Tensor) -> tuple[Tensor, Back]:  # nothing of size P x M is kept
        result = sim.new_empty(2, len(query))
        for block, i, p in blocks(query, positive, sim.shape[1]):
            above = _above(sim, i, p, temperature)  # [B, M]
            result[0, block] = (above * pos[i]).sum(dim=1)
            result[1, block] = (above * counted[i]).sum(dim=1)

        def back(grad: Tensor) -> tuple[Tensor]:  # [2, P]
            on_sim = torch.zeros_like(sim)
            for block, i, p in blocks(query, positive, sim.shape[1]):
                above = _above(sim, i, p, temperature)
                on_positives, on_all = grad[:, block, None]
                slope = (on_positives * pos[i] + on_all * counted[i]) * above * (1 - above)
                on_sim.index_add_(0, i, slope)
                on_sim[i, p] -= slope.sum(dim=1)
            return (on_sim / temperature,)

        return result.add_(0.5), back

    ranks: Tensor = differentiable(formula, written, sim)
    return query, ranks[0], ranks[1]


def mean_per_query(values: Tensor, query: Tensor, pos: Tensor) -> Tensor:  # [N]
    """Mean of the positive pairs' values for each query; 0 where it has no positive."""
    total = values.new_zeros(len(pos)).index_add(0, query, values)
    return total / pos.sum(dim=1).clamp(min=1)


def blocks(query: Tensor, positive: Tensor, width: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Positive pairs, so many at a time that a row of `width` for each of them stays small."""
    rows = max(1, _ENTRIES // max(1, width))
    for start in range(0, len(query), rows):
        block = slice(start, start + rows)
        yield block, query[block], positive[block]


def _above(sim: Tensor, query: Tensor, positive: Tensor, temperature: float) -> Tensor:  # [B, M]
    """How much each reference ranks above the positive: 0 to 1."""
    return torch.sigmoid((sim[query] - sim[query, positive][:, None]) / temperature)

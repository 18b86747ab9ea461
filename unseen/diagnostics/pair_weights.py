"""Pair weights of a loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels, keys_of
from unseen.core.tuples import relations
from unseen.diagnostics.base import by_class, prepared
from unseen.losses.base import LabelLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss

MOST_ITEMS = 1024
RIDGE = 1e-3

PairLoss = Callable[..., Tensor]


class PairWeights:
    """Pair weights: how hard a loss pulls or pushes each pair, by how similar the pair is.

    Formula:
        S the cosine similarities of the items. Rows of the Cholesky factor of S have exactly these
        similarities, so L(S) = loss(factor of S), and dL / dS_ij comes from automatic
        differentiation, for any loss that sees the items' similarities only; both orders of a pair
        are added. With fewer dimensions than items S has no factor: it is mixed with 0.1 % of the
        identity, which shrinks all similarities by as much.

    Paper:
        X. Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning,
        CVPR 2019, https://arxiv.org/abs/1904.06627: a loss on pairs is known by |dL / dS_ij|.

    Args:
        loss: (embeddings, labels) -> scalar; multi-similarity if none is given.

    Use:
        losses of pairs and triplets, on batches of up to some hundred items. Losses with class
        parameters have no pairs.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import PairWeights
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(PairWeights()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['negative_similarity', 'negative_weight', 'positive_similarity', 'positive_weight']
    """

    def __init__(self, loss: PairLoss | None = None) -> None:
        if isinstance(loss, LabelLoss):
            raise ValueError(
                f"{type(loss).__name__} compares items with class parameters, not with each other: "
                "pair weights need a loss of pairs or triplets"
            )
        self.loss: PairLoss = MultiSimilarityLoss() if loss is None else loss

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Tensor]:
        """Of all pairs that are the same, and of all that are not: similarity and weight, [P] and
        [Q]."""
        if len(embeddings) > MOST_ITEMS:
            raise ValueError(
                f"pair weights are those of a batch: at most {MOST_ITEMS} items, "
                f"got {len(embeddings)}"
            )
        x = prepared(embeddings)
        by_class(keys_of(labels), len(x))  # as many as there are items
        sim = (x @ x.T).fill_diagonal_(1.0)
        identity = torch.eye(len(x), dtype=x.dtype, device=x.device)
        with torch.enable_grad():
            mixed = torch.lerp(sim, identity, RIDGE).requires_grad_()
            cost = self.loss(torch.linalg.cholesky(mixed), labels)
            (slope,) = torch.autograd.grad(cost, mixed)
        slope = slope + slope.T
        first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
        similarity, weight = sim[first, second], slope[first, second].abs()
        same, different = (mask[first, second] for mask in relations(labels))
        return {
            "positive_similarity": similarity[same],
            "positive_weight": weight[same],
            "negative_similarity": similarity[different],
            "negative_weight": weight[different],
        }

"""Lifted structure loss."""

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.comparison import Comparison
from unseen.core.geometry import (
    among,
    cosine,
    distance,
    log_sum_exp,
    masked_mean,
    positive_pairs,
    soft_maximum,
    unit_distance,
)
from unseen.core.tuples import complete
from unseen.losses.base import Loss, check_choice, check_positive


class LiftedStructureLoss(Loss):
    """Lifted structure: every positive pair against all negatives of both its ends.

    Formula:
        Euclidean distances d; P the positive pairs, N(i) the negatives of i; LSE = log sum exp:

            pairs    J(i,j) = log( sum over k in N(i) of exp(margin - d(i,k))
                                 + sum over l in N(j) of exp(margin - d(j,l)) ) + d(i,j)
                     L      = mean over (i,j) in P of [J(i,j)]+ ^2 / 2

        and two forms on cosines S, averaged over anchors (Psomas' thesis, its text and its code):

            hinge    L(i) = [ LSE over P(i) of (margin - S) + LSE over N(i) of S ]+
            sharp    L(i) = 2/beta  * LSE over P(i) of (-beta S)
                          + 2/alpha * LSE over N(i) of (alpha S),     may be negative

        An anchor without positives or without negatives does not count; hinge averages over the
        others, sharp over all anchors. Beside references the negatives of j are the anchors in its
        column.

    Paper:
        H. Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016,
        https://arxiv.org/abs/1511.06452

    Args:
        form: pairs (paper), hinge or sharp (Psomas' thesis, its text and its code).
        margin: for the forms pairs and hinge; 1 with pairs (paper), 0.5 with hinge.
        normalize: unit embeddings; the paper takes raw ones (False).
        alpha: for the form sharp, on negatives; 40, on the pairs the multi_similarity miner keeps.
        beta: for the form sharp, on positives; 2, likewise.

    Use:
        m_per_class sampler; no miner, or multi_similarity.

    Example:
        >>> import torch
        >>> from unseen.losses import LiftedStructureLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = LiftedStructureLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        2.483
    """

    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {
        "thesis": ("multi_similarity", "thesis"),
        "thesis_code": ("multi_similarity", "thesis"),  # epsilon 0.1
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "thesis": {"form": "hinge", "margin": 0.5},
        "thesis_code": {"form": "sharp"},
    }

    def __init__(
        self,
        form: str = "pairs",
        margin: float = 1.0,
        normalize: bool = True,
        alpha: float = 40.0,
        beta: float = 2.0,
    ) -> None:
        super().__init__()
        check_choice("form", form, ("pairs", "hinge", "sharp"))
        check_positive(alpha=alpha, beta=beta)
        if not math.isfinite(margin):
            raise ValueError(f"margin must be a finite number, got {margin}")
        if form != "pairs" and not normalize:
            raise ValueError("normalize=False is for form='pairs': the other forms are on cosines")
        self.form, self.margin, self.alpha, self.beta = form, margin, alpha, beta
        self.measure = unit_distance if normalize else distance
        self.scale_invariant = normalize
        self.compares_raw = not normalize

    def on_comparison(self, batch: Comparison) -> Tensor:
        if self.form == "pairs":
            formula = partial(self._on_pairs, batch)
            slope = self._slope if batch.tuples is None else None
            return batch.matrix_loss(self.measure, formula, slope)
        sim = batch.matrix(cosine)  # [N, M]
        pos, neg = batch.masks()
        valid = complete(pos, neg)  # [N]
        if self.form == "hinge":
            costs = self.margin + log_sum_exp(sim, pos, scale=-1.0) + log_sum_exp(sim, neg)
            return masked_mean(costs.clamp(min=0), valid)
        pull = 2 / self.beta * log_sum_exp(sim, pos, scale=-self.beta)
        push = 2 / self.alpha * log_sum_exp(sim, neg, scale=self.alpha)
        return (pull + push).masked_fill(~valid, 0.0).sum() / max(1, len(sim))

    def _on_pairs(self, batch: Comparison, dist: Tensor, _: Tensor, neg: Tensor) -> Tensor:
        # a pair without any negative: far below 0 instead of -inf, whose gradient would be NaN
        floor = torch.finfo(dist.dtype).min / 4
        of_anchor = log_sum_exp(dist, neg, scale=-1.0).clamp(min=floor)  # [N]
        of_reference = of_anchor
        if batch.ref_labels is not None:
            of_reference = log_sum_exp(dist, neg, dim=0, scale=-1.0).clamp(min=floor)  # [M]
        anchor, positive = batch.positive_pairs()  # [P]
        near = dist.flatten().index_select(0, anchor * dist.shape[1] + positive)
        ends = torch.logaddexp(
            of_anchor.index_select(0, anchor), of_reference.index_select(0, positive)
        )
        costs = (self.margin + ends + near).clamp(min=0)
        return costs.square().sum() / (2 * max(1, len(anchor)))

    def _slope(self, dist: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value of all positive pairs, and its gradient by the distances."""
        pair, anchor = positive_pairs(pos)  # [P]
        ends, fractions = soft_maximum(among(neg).sub_(dist))  # [N, 1], [N, M]
        of_anchor = ends[:, 0].index_select(0, anchor)
        of_positive = ends[:, 0].index_select(0, pair % len(dist))
        near = dist.flatten().index_select(0, pair)
        costs = torch.logaddexp(of_anchor, of_positive).add_(near).add_(self.margin).clamp_(min=0)
        num = max(1, len(pair))
        on_pair = costs / num
        # (i, j) and (j, i) cost the same, so an anchor's share counts twice
        on_ends = on_pair * of_anchor.sub_(of_positive).sigmoid_()
        on_ends = torch.zeros_like(ends).index_add_(0, anchor, on_ends[:, None], alpha=-2)
        slope = fractions.mul_(on_ends)
        slope.view(-1).index_add_(0, pair, on_pair)
        return costs.square().sum() / (2 * num), slope

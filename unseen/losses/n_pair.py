"""N-pair: an anchor's positive against many negatives at once, on inner products.

Paper    K. Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016,
         https://papers.nips.cc/paper/6200
Formula  inner products G of raw embeddings x (cosines with `normalise=True`), over positive pairs (a, p):

             L = mean over (a, p) of log(1 + sum over n in N(a) of exp(G[a,n] - G[a,p])) + nu * mean |x|^2

         `negatives="batch"`: N(a) are the negatives of a; `"positives"`: the positives of the pairs of
         other classes, which is Sohn's cross-entropy. `symmetric=True` averages it with the same on
         p's column (the anchors of other pairs). `penalty="norm"` takes |x| instead of its square.
Values   nu 0.005, all negatives (Roth et al.; their code: norm, embeddings over 4 for BN-Inception:
         prescale 0.25); unit embeddings, no penalty (Li et al.; Psomas' code); nu 0.02 (Psomas' text);
         cosines and all positives (Jacob et al.).
Use      n_pair miner (one positive per anchor, or one pair per class); without it all positive pairs.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.geometry import cosine, dot, log_sum_exp
from unseen.losses.base import (
    Comparison,
    Loss,
    check_choice,
    check_not_negative,
    check_positive,
    penalty,
)


class NPair(Loss):
    """negatives: batch or positives. nu: weight of the penalty on the lengths of embeddings."""

    batch_free_weights = ("nu",)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"penalty": "norm"},
        "thesis": {"negatives": "positives", "normalise": True, "nu": 0.02},
        "thesis_code": {"negatives": "positives", "normalise": True, "nu": 0.0},
        "density": {"negatives": "positives", "normalise": True, "nu": 0.0},
        "horde": {"normalise": True, "nu": 0.0},
    }

    def __init__(
        self,
        negatives: str = "batch",
        normalise: bool = False,
        nu: float = 0.005,
        penalty: str = "squared",
        symmetric: bool = False,
        prescale: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("negatives", negatives, ("batch", "positives"))
        check_choice("penalty", penalty, ("squared", "norm"))
        check_not_negative(nu=nu)
        check_positive(prescale=prescale)
        if symmetric and negatives == "batch":
            raise ValueError("symmetric=True needs negatives='positives': pairs on both sides")
        self.negatives, self.symmetric = negatives, symmetric
        self.nu, self.penalty, self.prescale = nu, penalty, prescale
        self.measure = cosine if normalise else dot
        self.scale_invariant = normalise and nu == 0

    def price(self, batch: Comparison) -> Tensor:
        anchor, positive = batch.positive_pairs()  # [P]
        if self.negatives == "batch":
            sim = batch.matrix(self.measure) * self.prescale**2  # [N, M]
            across = log_sum_exp(sim, batch.masks()[1]).index_select(0, anchor)
            near = sim.flatten().index_select(0, anchor * sim.shape[1] + positive)
            total = F.softplus(across - near).sum()
        else:
            total = self._against_pairs(batch, anchor, positive)
        return total / max(1, len(anchor)) + self.nu * penalty(
            batch.embeddings * self.prescale, self.penalty
        )

    def _against_pairs(self, batch: Comparison, anchor: Tensor, positive: Tensor) -> Tensor:
        """Each pair against the pairs of other classes. Of these, anchors and positives that occur
        several times are compared once and counted as often."""
        columns = batch.embeddings if batch.ref_embeddings is None else batch.ref_embeddings
        labels = batch.labels if batch.ref_labels is None else batch.ref_labels
        anchors, row, row_count = _distinct(anchor, len(batch.labels))
        positives, column, column_count = _distinct(positive, len(labels))
        sim = self.measure(batch.embeddings[anchors], columns[positives]) * self.prescale**2
        neg = batch.labels[anchors][:, None] != labels[positives][None, :]  # [A, B]
        near = sim.flatten().index_select(0, row * sim.shape[1] + column)  # [P]
        across = log_sum_exp(sim + column_count.to(sim.dtype).log()[None, :], neg)[row]
        costs = F.softplus(across - near)
        if self.symmetric:
            down = log_sum_exp(sim + row_count.to(sim.dtype).log()[:, None], neg, dim=0)[column]
            costs = (costs + F.softplus(down - near)) / 2
        return costs.sum()


def _distinct(listed: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The items of a list, where each place of the list finds its item, and how often they occur.
    A list that is no longer than the items there are is taken as it is."""
    if len(listed) > most:
        items, place, count = listed.unique(return_inverse=True, return_counts=True)
        return items, place, count
    return listed, torch.arange(len(listed), device=listed.device), torch.ones_like(listed)

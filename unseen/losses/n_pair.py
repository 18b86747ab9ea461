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

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.geometry import cosine, dot, log_sum_exp, weighted_mean
from unseen.losses.base import (
    Comparison,
    Loss,
    check_choice,
    check_not_negative,
    check_positive,
    penalty,
)
from unseen.tuples import relations


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
        sim = batch.matrix(self.measure) * self.prescale**2  # [N, M]
        positive = batch.pair_counts()[0]
        if self.negatives == "batch":
            costs = F.softplus(log_sum_exp(sim, batch.masks()[1])[:, None] - sim)
        else:
            costs = self._against_pairs(sim, positive, relations(batch.labels, batch.ref_labels)[1])
        return weighted_mean(costs, positive) + self.nu * penalty(
            batch.embeddings * self.prescale, self.penalty
        )

    def _against_pairs(self, sim: Tensor, positive: Tensor, neg: Tensor) -> Tensor:  # [N, M]
        """Each pair against the pairs of other classes; a column counts as often as pairs name it."""
        as_often = positive.sum(dim=0).log()  # [M], -inf for who is nobody's positive
        across = log_sum_exp(sim + as_often[None, :], neg & (as_often > -math.inf)[None, :])
        costs = F.softplus(across[:, None] - sim)
        if not self.symmetric:
            return costs
        as_often = positive.sum(dim=1).log()  # [N]
        down = log_sum_exp(sim + as_often[:, None], neg & (as_often > -math.inf)[:, None], dim=0)
        return torch.add(costs, F.softplus(down[None, :] - sim)) / 2

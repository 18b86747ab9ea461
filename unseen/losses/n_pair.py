"""N-pair loss."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.comparison import Comparison
from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import cosine, dot, log_sum_exp, to_unit, unit
from unseen.losses.base import (
    Loss,
    check_choice,
    check_not_negative,
    check_positive,
    penalized,
)


class NPairLoss(Loss):
    """N-pair: an anchor's positive against many negatives at once, on inner products.

    Formula:
        inner products G of raw embeddings x (cosines with `normalize=True`), over positive pairs
        (a, p):

            L = mean over (a, p) of log(1 + sum over n in N(a) of exp(G[a,n] - G[a,p]))
              + nu * mean of |x|^2

        `negatives="batch"`: N(a) are the negatives of a; `"positives"`: the positives of the pairs
        of other classes, which is Sohn's cross-entropy; `"both"` averages it with the same on p's
        column (the anchors of other pairs). `reduction="sum"` adds the pairs up.
        `penalty="norm"` takes |x| instead of its square. (Equation 4 of Roth et al. marks one
        factor as normalised: all are raw. Equation 2.22 of Psomas sums over positives and negatives
        at once: the positive is held.)

    Paper:
        K. Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016,
        https://papers.nips.cc/paper/6200

    Args:
        negatives: "batch", all negatives (Roth et al.), "positives" of the other pairs (Sohn; Jacob
            et al.), or "both" sides of them.
        normalize: unit embeddings, so cosines (Li et al.; Psomas' code; Jacob et al.).
        nu: weight of the penalty on the lengths of embeddings; 0.005 (Roth et al.), 0.02 (Psomas'
            text), 0 on unit embeddings.
        penalty: "squared" takes |x|^2, "norm" takes |x| (the code of Roth et al.).
        reduction: of the pairs, mean or sum (Li et al.).
        prescale: a factor on embeddings; 0.25 for BN-Inception in the code of Roth et al.
            (embeddings over 4).

    Use:
        n_pair miner (one positive per anchor, or one pair per class); without it all positive
        pairs. A run evaluates raw embeddings by Euclidean distance.

    Example:
        >>> import torch
        >>> from unseen.losses import NPairLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = NPairLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.962
    """

    batch_free_weights = ("nu",)
    usual_miner = "n_pair"
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {"horde": None}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"penalty": "norm"},
        "thesis": {"negatives": "positives", "normalize": True, "nu": 0.02},
        "thesis_code": {"negatives": "positives", "normalize": True, "nu": 0.0},
        "density": {
            "negatives": "positives",
            "normalize": True,
            "nu": 0.0,
            "reduction": "sum",
        },
        "horde": {"normalize": True, "nu": 0.0},
    }

    def __init__(
        self,
        negatives: str = "batch",
        normalize: bool = False,
        nu: float = 0.005,
        penalty: str = "squared",
        reduction: str = "mean",
        prescale: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("negatives", negatives, ("batch", "positives", "both"))
        check_choice("reduction", reduction, ("mean", "sum"))
        check_choice("penalty", penalty, ("squared", "norm"))
        check_not_negative(nu=nu)
        check_positive(prescale=prescale)
        self.negatives, self.reduction = negatives, reduction
        self.symmetric = negatives == "both"
        self.nu, self.penalty, self.prescale = nu, penalty, prescale
        self.normalize = normalize
        self.scale_invariant = normalize and nu == 0
        self.compares_raw = not normalize

    def on_comparison(self, batch: Comparison) -> Tensor:
        if self.prescale != 1:
            batch = batch.scaled(self.prescale)
        anchor, positive = batch.positive_pairs()  # [P]
        if self.negatives == "batch":
            sim = batch.matrix(cosine if self.normalize else dot)  # [N, M]
            across = log_sum_exp(sim, batch.masks()[1]).index_select(0, anchor)
            near = sim.flatten().index_select(0, anchor * sim.shape[1] + positive)
            total = F.softplus(across - near).sum()
        else:
            total = self._against_pairs(batch, anchor, positive)
        loss = total if self.reduction == "sum" else total / max(1, len(anchor))
        return penalized(loss, batch.embeddings, self.nu, self.penalty)

    def _against_pairs(self, batch: Comparison, anchor: Tensor, positive: Tensor) -> Tensor:
        """Each pair against the pairs of other classes."""
        if len(anchor) <= len(batch.labels):
            if batch.ref_embeddings is None and not self.symmetric:
                return self._own_pairs(batch, anchor, positive)
            sim, same = self._compare(batch, anchor, positive)  # [P, P]
            own = torch.arange(len(sim), device=sim.device)
            logits = sim.masked_fill(same.fill_diagonal_(False), -math.inf)
            total = F.cross_entropy(logits, own, reduction="sum")
            if self.symmetric:
                total = (total + F.cross_entropy(logits.T, own, reduction="sum")) / 2
            return total
        # items occur in several pairs: compared once, counted as often
        anchors, row, row_count = anchor.unique(return_inverse=True, return_counts=True)
        others, column, count = positive.unique(return_inverse=True, return_counts=True)
        sim, same = self._compare(batch, anchors, others)  # [A, B]
        near = sim[row, column]  # [P]
        costs = F.softplus(log_sum_exp(sim + count.to(sim.dtype).log(), ~same)[row] - near)
        if self.symmetric:
            counted = sim + row_count.to(sim.dtype).log()[:, None]
            costs = (costs + F.softplus(log_sum_exp(counted, ~same, dim=0)[column] - near)) / 2
        return costs.sum()

    def _own_pairs(self, batch: Comparison, anchor: Tensor, positive: Tensor) -> Tensor:
        """The same as one function of the embeddings."""
        same = ~batch.different(anchor, positive)  # [P, P]
        same.fill_diagonal_(False)
        own = torch.arange(len(anchor), device=anchor.device)

        def formula(x: Tensor) -> Tensor:
            rows = unit(x) if self.normalize else x
            sim = rows.index_select(0, anchor) @ rows.index_select(0, positive).T
            return F.cross_entropy(sim.masked_fill(same, -math.inf), own, reduction="sum")

        def written(x: Tensor) -> tuple[Tensor, Back]:
            rows, back_to_x = to_unit(x) if self.normalize else (x, lambda grad: (grad,))
            left, right = rows.index_select(0, anchor), rows.index_select(0, positive)
            logits = (left @ right.T).masked_fill_(same, -math.inf)
            slope = torch.softmax(logits, dim=1)
            slope.diagonal().sub_(1)

            def back(grad: Tensor) -> tuple[Tensor, ...]:
                by_sim = slope * grad
                by_rows = torch.zeros_like(rows).index_add_(0, anchor, by_sim @ right)
                return back_to_x(by_rows.index_add_(0, positive, by_sim.T @ left))

            return F.cross_entropy(logits, own, reduction="sum"), back

        total: Tensor = differentiable(formula, written, batch.embeddings)
        return total

    def _compare(
        self, batch: Comparison, anchor: Tensor, positive: Tensor
    ) -> tuple[Tensor, Tensor]:  # two [A, B]
        """Similarities of anchors and positives, and which of them are of one class."""
        rows, references = batch.embeddings, batch.ref_embeddings
        if self.normalize:
            rows, references = unit(rows), None if references is None else unit(references)
        references = rows if references is None else references
        sim = dot(rows.index_select(0, anchor), references.index_select(0, positive))
        return sim, ~batch.different(anchor, positive)

"""Multi-similarity loss."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.geometry import among, log_sum_exp, soft_maximum
from unseen.losses.base import MatrixLoss


class MultiSimilarityLoss(MatrixLoss):
    """Multi-similarity: each pair weighs by how hard it is among the anchor's other pairs.

    Formula:
        for an anchor i, its positives P(i), its negatives N(i), cosine similarities S:

            L(i) = 1/alpha * log(1 + sum over p in P(i) of exp(-alpha * (S[i,p] - base)))
                 + 1/beta  * log(1 + sum over n in N(i) of exp( beta  * (S[i,n] - base)))

        averaged over all anchors; an anchor without pairs counts as 0 (`average="paired"` leaves
        such anchors out of the average, as the code of Roth et al. does). (Their equation 11 sets
        pairs that mining discards to similarity 0, which would still cost; they are left out.)

    Paper:
        X. Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric
        Learning, CVPR 2019, https://arxiv.org/abs/1904.06627

    Args:
        alpha: sharpness on positives; 2 (paper).
        beta: sharpness on negatives; 50 (paper).
        base: the similarity both start from; 0.5 (common code), 1 in the paper.
        average: "all" anchors, or the "paired" ones alone (the code of Roth et al.).

    Use:
        m_per_class sampler with at least 2 per class; multi_similarity miner or none.

    Example:
        >>> import torch
        >>> from unseen.losses import MultiSimilarityLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = MultiSimilarityLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.499
    """

    usual_miner = "multi_similarity"
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {"horde": None}
    one_sided = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"beta": 40.0},
        "revisit_code": {"beta": 40.0, "average": "paired"},
        "thesis": {},
        "thesis_code": {"alpha": 17.97, "beta": 75.66, "base": 0.77},
        "thesis_tuned": {"alpha": 18.0, "beta": 76.0, "base": 0.8},
        "horde": {},
    }

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, average: str = "all"
    ) -> None:
        super().__init__()
        if alpha <= 0 or beta <= 0:
            raise ValueError(f"alpha and beta must be positive, got alpha={alpha}, beta={beta}")
        if average not in ("all", "paired"):
            raise ValueError(f"average must be 'all' or 'paired', got {average!r}")
        self.alpha, self.beta, self.base, self.average = alpha, beta, base, average

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        alpha, beta, base = self.alpha, self.beta, self.base
        pull = F.softplus(log_sum_exp(sim, pos, scale=-alpha) + alpha * base) / alpha  # [N]
        push = F.softplus(log_sum_exp(sim, neg, scale=beta) - beta * base) / beta  # [N]
        if self.average == "paired":
            paired = (pos.any(dim=1) | neg.any(dim=1)).sum()
            return (pull + push).sum() / paired.clamp(min=1)
        return (pull + push).sum() / max(1, len(sim))

    def slope(self, sim: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the similarities."""
        alpha, beta, base = self.alpha, self.beta, self.base
        pull, near = soft_maximum(among(pos).add_(sim, alpha=-alpha))  # [N, 1], [N, M]
        push, far = soft_maximum(among(neg).add_(sim, alpha=beta))
        both = torch.cat([pull.add_(alpha * base), push.sub_(beta * base)], dim=1)  # [N, 2]
        total = F.softplus(both).sum(dim=0).dot(both.new_tensor([1 / alpha, 1 / beta]))
        num: Tensor | int = len(sim)
        if self.average == "paired":
            num = torch.maximum(pos.amax(dim=1), neg.amax(dim=1)).sum().clamp(min=1)
        weight = both.sigmoid_().div_(num)
        slope = far.mul_(weight[:, 1:]).sub_(near.mul_(weight[:, :1]))
        return total / num, slope

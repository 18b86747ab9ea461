"""Metrix: anchors are also compared with mixtures of a positive and a negative.

Paper    S. Venkataramanan et al., It Takes Two to Tango: Mixup for Deep Metric Learning, ICLR 2022,
         https://arxiv.org/abs/2106.04990; here on embeddings (Metrix/embed) with multi-similarity.
Formula  for an anchor a, a positive p and a negative n, all as unit vectors, and a share l,

             v = l p + (1 - l) n,        s(a, v) = a . v / |v|

             L(a) = 1/alpha log(1 + sum over p, n of    l    exp(-alpha (s(a, v) - base)))
                  + 1/beta  log(1 + sum over p, n of (1 - l) exp( beta  (s(a, v) - base)))

         averaged over the anchors: a mixture is a positive by l and a negative by 1 - l. The shares
         are of Beta(concentration, concentration); instead of one draw a step L is averaged over
         that distribution by Gauss quadrature at `nodes` shares, so that a step is no matter of
         luck and needs no generator (our choice). The authors' code has the sums of clean and
         mixed pairs in one logarithm; the paper adds the two errors, as here.
Values   weight 0.4, concentration 2 (paper); nodes 3, alpha 2, beta 50, base 0.5 (ours, those of
         the loss). The paper gives R@1 67.8 to 70.2 on CUB for ResNet-50 with multi-similarity.
Use      loss multi_similarity with the same alpha, beta and base, its miner or none: mixtures are
         made of all pairs of the batch.
"""

import math
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.contracts import Output
from unseen.geometry import cosine, log_sum_exp
from unseen.losses.base import check_positive
from unseen.losses.smooth_ap import blocks
from unseen.regularizers.base import Regularizer
from unseen.relevance import AnyLabels
from unseen.tuples import relations


class Metrix(Regularizer):
    """alpha, beta, base: of multi_similarity. concentration: of the shares; nodes: how many."""

    usual_weight = 0.4
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"metrix": {}}

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 0.5,
        concentration: float = 2.0,
        nodes: int = 3,
    ) -> None:
        super().__init__()
        check_positive(alpha=alpha, beta=beta, concentration=concentration, nodes=nodes)
        self.alpha, self.beta, self.base = alpha, beta, base
        self.shares = beta_nodes(concentration, nodes)

    def price(self, output: Output, labels: AnyLabels) -> Tensor:
        sim = cosine(output.embeddings)  # [N, N]
        pos, neg = relations(labels)
        terms = [weight * self._mixed(sim, pos, neg, share) for share, weight in self.shares]
        price = torch.stack(terms).sum()
        self.note(mixed=price)
        return price

    def _mixed(self, sim: Tensor, pos: Tensor, neg: Tensor, share: float) -> Tensor:
        used = pos & neg.any(dim=1, keepdim=True)
        anchor, positive = used.nonzero(as_tuple=True)
        parts = [(a, p) for _, a, p in blocks(anchor, positive, len(sim))]
        found = [sim.new_zeros(2, 0), *(self._rows(sim, neg, share, *part) for part in parts[:1])]
        for part in parts[1:]:  # their rows are computed twice instead of kept
            again = checkpoint(self._rows, sim, neg, share, *part, use_reentrant=False)
            found.append(again)
        pull, push = ((0.0 * sim).index_put((anchor, positive), row) for row in torch.cat(found, 1))
        near = F.softplus(log_sum_exp(pull, used)) / self.alpha  # [N]
        far = F.softplus(log_sum_exp(push, used)) / self.beta
        return (near + far).sum() / max(1, len(sim))

    def _rows(
        self, sim: Tensor, neg: Tensor, share: float, anchor: Tensor, positive: Tensor
    ) -> Tensor:  # [2, B]
        """For some positive pairs the logarithm of their sums over the anchor's negatives."""
        rest, near = 1 - share, sim[anchor, positive][:, None]
        squares = share**2 + rest**2 + 2 * share * rest * sim[positive]  # |v|^2, [B, N]
        mixed = (share * near + rest * sim[anchor]) * squares.clamp(min=1e-12).rsqrt()
        pull = log_sum_exp(mixed, neg[anchor], scale=-self.alpha)
        push = log_sum_exp(mixed, neg[anchor], scale=self.beta)
        pull = pull + self.alpha * self.base + math.log(share)
        return torch.stack([pull, push - self.beta * self.base + math.log(rest)])


def beta_nodes(concentration: float, nodes: int) -> list[tuple[float, float]]:
    """Shares and weights that average polynomials of up to 2 nodes - 1 degrees over
    Beta(concentration, concentration) exactly: eigenvalues of its Jacobi matrix (Golub, Welsch)."""
    k, a = np.arange(2, nodes), concentration - 1
    inner = np.array([1 / (2 * a + 3), *(k * (k + 2 * a) / ((2 * k + 2 * a) ** 2 - 1))])
    beside = np.sqrt(inner[: nodes - 1])
    values, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return [(float((1 + x) / 2), float(w)) for x, w in zip(values, vectors[0] ** 2, strict=True)]

"""Metrix, mixup of embeddings."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unseen.core.contracts import Output
from unseen.core.geometry import cosine, log_sum_exp
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import relations
from unseen.losses.base import check_positive
from unseen.losses.smooth_ap import blocks
from unseen.regularizers.base import Regularizer


class MetrixRegularizer(Regularizer):
    """Metrix: anchors are also compared with mixtures of a positive and a negative.

    Formula:
        for an anchor a, a positive p and a negative n, all as unit vectors, and a share l,

            v = l p + (1 - l) n,        s(a, v) = a . v / |v|

            L(a) = 1/alpha log(1 + sum over p, n of    l    exp(-alpha (s(a, v) - base)))
                 + 1/beta  log(1 + sum over p, n of (1 - l) exp( beta  (s(a, v) - base)))

        averaged over the anchors: a mixture is a positive by l and a negative by 1 - l. The shares
        are of Beta(concentration, concentration); instead of one draw a step L is averaged over
        that distribution by Gauss quadrature at `nodes` shares, so that a step is no matter of
        luck and needs no generator (our choice). The authors' code has the sums of clean and
        mixed pairs in one logarithm; the paper adds the two errors, as here.

    Paper:
        S. Venkataramanan et al., It Takes Two to Tango: Mixup for Deep Metric Learning, ICLR 2022,
        https://arxiv.org/abs/2106.04990; here on embeddings (Metrix/embed) with multi-similarity.

    Args:
        alpha: of multi_similarity, on positives; 2 (ours, that of the loss).
        beta: of multi_similarity, on negatives; 50 (likewise).
        base: of multi_similarity; 0.5 (likewise).
        concentration: of the shares; 2 (paper).
        nodes: how many shares the average is taken at; 3 (ours).

    Weight:
        0.4 (paper). The paper gives R@1 67.8 to 70.2 on CUB for ResNet-50 with multi-similarity.

    Use:
        loss multi_similarity with the same alpha, beta and base, its miner or none: mixtures are
        made of all pairs of the batch.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import MetrixRegularizer
        >>> output = Output(embeddings=torch.eye(4), pooled=torch.eye(4))
        >>> round(MetrixRegularizer()(output, torch.tensor([0, 0, 1, 1])).item(), 3)
        0.626
    """

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
        self.fractions = beta_nodes(concentration, nodes)

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        sim = cosine(output.embeddings)  # [N, N]
        pos, neg = relations(labels)
        terms = [
            weight * self._mixed(sim, pos, neg, fraction) for fraction, weight in self.fractions
        ]
        loss = torch.stack(terms).sum()
        self.note(mixed=loss)
        return loss

    def _mixed(self, sim: Tensor, pos: Tensor, neg: Tensor, fraction: float) -> Tensor:
        used = pos & neg.any(dim=1, keepdim=True)
        anchor, positive = used.nonzero(as_tuple=True)
        chunks = [(a, p) for _, a, p in blocks(anchor, positive, len(sim))]
        result = [
            sim.new_zeros(2, 0),
            *(self._rows(sim, neg, fraction, *chunk) for chunk in chunks[:1]),
        ]
        for chunk in chunks[1:]:  # their rows are computed twice instead of kept
            again = checkpoint(self._rows, sim, neg, fraction, *chunk, use_reentrant=False)
            result.append(again)
        pull, push = (
            (0.0 * sim).index_put((anchor, positive), row) for row in torch.cat(result, 1)
        )
        near = F.softplus(log_sum_exp(pull, used)) / self.alpha  # [N]
        far = F.softplus(log_sum_exp(push, used)) / self.beta
        return (near + far).sum() / max(1, len(sim))

    def _rows(
        self, sim: Tensor, neg: Tensor, fraction: float, anchor: Tensor, positive: Tensor
    ) -> Tensor:  # [2, B]
        """For some positive pairs the logarithm of their sums over the anchor's negatives."""
        rest, near = 1 - fraction, sim[anchor, positive][:, None]
        squares = fraction**2 + rest**2 + 2 * fraction * rest * sim[positive]  # |v|^2, [B, N]
        mixed = (fraction * near + rest * sim[anchor]) * squares.clamp(min=1e-12).rsqrt()
        pull = log_sum_exp(mixed, neg[anchor], scale=-self.alpha)
        push = log_sum_exp(mixed, neg[anchor], scale=self.beta)
        pull = pull + self.alpha * self.base + math.log(fraction)
        return torch.stack([pull, push - self.beta * self.base + math.log(rest)])


def beta_nodes(concentration: float, nodes: int) -> list[tuple[float, float]]:
    """Shares and weights that average polynomials of up to 2 nodes - 1 degrees over
    Beta(concentration, concentration) exactly: eigenvalues of its Jacobi matrix (Golub, Welsch)."""
    k, a = np.arange(2, nodes), concentration - 1
    inner = np.array([1 / (2 * a + 3), *(k * (k + 2 * a) / ((2 * k + 2 * a) ** 2 - 1))])
    beside = np.sqrt(inner[: nodes - 1])
    values, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return [(float((1 + x) / 2), float(w)) for x, w in zip(values, vectors[0] ** 2, strict=True)]

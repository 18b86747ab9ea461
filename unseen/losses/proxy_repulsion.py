"""Proxy repulsion loss."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unseen.core.geometry import dot, unit
from unseen.losses.base import LabelLoss
from unseen.losses.proxy_anchor import attraction

_ENTRIES = 2**22  # of a block of rows of the class-by-class matrix, which may not fit as a whole


class ProxyRepulsionLoss(LabelLoss):
    """Proxy repulsion: proxies pull the items of their class and push each other apart.

    Formula:
        S[i,c] the cosine between item i and proxy c, C all classes, C+ those present in the batch:

            L = mean over c in C+ of log(1 + sum over i in c of exp(-alpha * (S[i,c] - delta)))
              + 1/|C| * sum over c of log(1 + sum over c' != c of exp(alpha * (G[c,c'] + delta)))

        variant 1: G[c,c'] is the cosine of two proxies. variant 2: G[c,c'] = sum over i of S[i,c]
        S[i,c'], so proxies part whose similarities to the batch agree; `normalize` divides that
        sum by the batch's size. `negatives="absent"` is the literal reading of equations 6.1 and
        6.2, in which only the classes W- that are not in the batch push; the thesis' code takes
        all. Variant 1 then has 1/|W-| * sum over c in W-, variant 2 still 1/|C| * sum over all c.
        (6.1 prints X+ without its class and lets c' = c in: both are corrected here.)

    Paper:
        B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
        University of Athens, 2020, chapter 6

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        variant: compare proxies (1) or their similarities to the batch (2); 2 gave the scores of
            the thesis.
        alpha: sharpness; 32 (code of the thesis).
        delta: the margin on both sides; 0.1 (code of the thesis).
        negatives: "all" classes push (code of the thesis), or those that are "absent" from the
            batch.
        normalize: variant 2 divides the sum over the batch by the batch's size.
        lr: of the proxies, decayed by 1e-4; 1e-2 (code of the thesis). None: the run's.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import ProxyRepulsionLoss
        >>> loss = ProxyRepulsionLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}, "thesis_code": {}}

    own_weight_decay = 1e-4

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        variant: int = 2,
        alpha: float = 32.0,
        delta: float = 0.1,
        negatives: str = "all",
        normalize: bool = False,
        lr: float | None = 1e-2,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if variant not in (1, 2):
            raise ValueError(f"variant must be 1 or 2, got {variant}")
        if negatives not in ("all", "absent"):
            raise ValueError(f"negatives must be all or absent, got {negatives!r}")
        if alpha <= 0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        self.variant, self.alpha, self.delta = variant, alpha, delta
        self.negatives, self.normalize = negatives, normalize
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        proxies = unit(self.proxies.to(embeddings.dtype))  # [C, D]
        embeddings = unit(embeddings)
        own = (embeddings * proxies[labels]).sum(dim=1)  # [N], each item with its own proxy
        # G is the Gram matrix of these rows
        profiles = proxies if self.variant == 1 else dot(proxies, embeddings)  # [C, D] or [C, N]
        if self.normalize and self.variant == 2:
            profiles = profiles / math.sqrt(max(1, len(labels)))
        silent = None
        if self.negatives == "absent":
            present = torch.zeros(self.num_classes, dtype=torch.bool, device=labels.device)
            present[labels] = True
            if self.variant == 1:
                profiles = profiles[~present]
            else:
                silent = present
        pull = attraction(-self.alpha * (own - self.delta), labels, self.num_classes)
        return pull + self._repulsion(profiles, silent) / max(1, len(profiles))

    def _repulsion(self, profiles: Tensor, silent: Tensor | None = None) -> Tensor:
        """Sum over rows of log(1 + sum over other rows of exp(alpha * (inner product + delta))),
        the inner one without `silent` rows [C]."""
        num_rows = max(1, _ENTRIES // max(1, len(profiles)))
        if len(profiles) <= num_rows:
            return self._rows(profiles, silent, 0, len(profiles))
        starts = range(0, len(profiles), num_rows)
        # each block is computed again in the backward pass instead of being kept
        parts = [
            checkpoint(self._rows, profiles, silent, s, s + num_rows, use_reentrant=False)
            for s in starts
        ]
        return torch.stack(parts).sum()

    def _rows(self, profiles: Tensor, silent: Tensor | None, start: int, stop: int) -> Tensor:
        gram = profiles[start:stop] @ profiles.T  # [rows, C]
        itself = torch.arange(start, start + len(gram), device=gram.device)[:, None]
        others = (self.alpha * gram).scatter(1, itself, -math.inf)
        if silent is not None:
            others = others.masked_fill(silent, -math.inf)
        return F.softplus(others.logsumexp(dim=1) + self.alpha * self.delta).sum()

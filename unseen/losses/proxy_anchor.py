"""ProxyAnchor: each proxy pulls its class's items and pushes all others, the hardest the most.

Paper    S. Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020,
         https://arxiv.org/abs/2003.13911
Formula  S[i,c] the cosine between item i and proxy c, C all classes, C+ those present in the batch:

             L = mean over c in C+ of log(1 + sum over i in c of exp(-alpha * (S[i,c] - delta)))
               + mean over c in C  of log(1 + sum over other i of exp(alpha * (S[i,c] + delta)))

Values   alpha 32, delta 0.1; proxies learn 100 times as fast as the network (paper, Psomas'
         thesis).
Use      any sampler, no miner.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.geometry import cosine, log1p_sum_exp
from unseen.losses.base import LabelLoss


class ProxyAnchor(LabelLoss):
    """alpha: sharpness. delta: the margin on both sides."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}, "thesis_code": {}}

    lr_factor = 100.0
    own_weight_decay = 1e-4

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float = 32.0,
        delta: float = 0.1,
        lr: float | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if alpha <= 0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        self.alpha, self.delta = alpha, delta
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        sim = cosine(self.proxies.to(embeddings.dtype), embeddings)  # [C, N]
        others = sim.scatter(0, labels[None, :], -math.inf)  # [C, N], without each item's own proxy
        push = F.softplus((self.alpha * others).logsumexp(dim=1) + self.alpha * self.delta)  # [C]
        return attraction(sim, labels, self.alpha, self.delta) + push.mean()


def attraction(sim: Tensor, labels: Tensor, alpha: float, delta: float) -> Tensor:
    """The first term, from the cosines [C, N] of proxies and items; only own ones are needed."""
    present, place, count = labels.unique(return_inverse=True, return_counts=True)
    if not len(present):
        return sim.sum()
    own = -alpha * (sim[labels, torch.arange(len(labels), device=labels.device)] - delta)  # [N]
    same_class = place[:, None] == place  # [N, N]
    pull = log1p_sum_exp(own.expand(len(own), -1), where=same_class)  # [N], alike within a class
    return (pull / count[place]).sum() / len(present)

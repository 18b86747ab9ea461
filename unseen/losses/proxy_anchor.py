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

from unseen.geometry import dot, log1p_sum_exp, unit
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
        proxies = unit(self.proxies.to(embeddings.dtype))
        sim = dot(proxies, self.alpha * unit(embeddings))  # [C, N], alpha times the cosine
        margin = self.alpha * self.delta
        own = labels[None, :]
        push = sim.scatter(0, own, -math.inf).logsumexp(dim=1) + margin  # [C]
        return attraction(margin - sim.gather(0, own)[0], labels) + F.softplus(push).mean()


def attraction(exponents: Tensor, labels: Tensor) -> Tensor:
    """The first term, from each item's -alpha * (S - delta) [N] with its own proxy."""
    present, place, count = labels.unique(return_inverse=True, return_counts=True)
    same_class = place[:, None] == place  # [N, N]
    # [N], alike for all items of a class, so that each adds its share of the class's term
    pull = log1p_sum_exp(exponents.expand(len(place), -1), where=same_class)
    return (pull / count[place]).sum() / max(1, len(present))

"""ProxyAnchor: each proxy pulls its class's items and pushes all others, the hardest the most.

Paper    S. Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020,
         https://arxiv.org/abs/2003.13911
Formula  S[i,c] the cosine between item i and proxy c, C all classes, C+ those present in the batch:

             L = mean over c in C+ of log(1 + sum over i in c of exp(-alpha * (S[i,c] - delta)))
               + mean over c in C  of log(1 + sum over other i of exp(alpha * (S[i,c] + delta)))

         (Equation 2.32 of Psomas, its gradient, lost the exponentials of the numerators.)
Values   alpha 32, delta 0.1, proxies at 1e-2 and decayed by 1e-4 (authors' code and Psomas' thesis:
         100 times the network's 1e-4). For a head on frozen features at 1e-4 (docs/choosing.md)
         1e-2 and 1e-1 were equal, slower proxies 0.5 to 0.9 points of recall@1 behind.
Use      any sampler, no miner.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.geometry import dot, unit
from unseen.losses.base import LabelLoss


class ProxyAnchor(LabelLoss):
    """alpha: sharpness. delta: the margin on both sides."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}, "thesis_code": {}}

    own_weight_decay = 1e-4

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float = 32.0,
        delta: float = 0.1,
        lr: float | None = 1e-2,
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
        pull = attraction(margin - sim.gather(0, own)[0], labels, self.num_classes)
        return pull + F.softplus(push).mean()


def attraction(exponents: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The first term, from each item's -alpha * (S - delta) [N] with its own proxy: the mean over
    the classes present of log(1 + sum of exp)."""
    largest = exponents.new_zeros(num_classes)  # 0 is the exponent of the 1
    largest.scatter_reduce_(0, labels, exponents.detach(), "amax")  # [C]
    shares = (exponents - largest[labels]).exp()  # [N]
    pull = largest.neg().exp().index_add(0, labels, shares).log() + largest  # [C], 0 where absent
    return pull.sum() / torch.bincount(labels).count_nonzero().clamp(min=1)

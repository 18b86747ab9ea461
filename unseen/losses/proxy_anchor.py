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
Classes  `sample_rate` compares with a share of them in each step (losses/class_centres).
Use      any sampler, no miner.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.contracts import Shards
from unseen.derivatives import Back, differentiable
from unseen.geometry import OFF, scaled_cosine, soft_maximum
from unseen.losses.class_centres.base import CentreLoss
from unseen.losses.class_centres.sampling import Drawn


class ProxyAnchor(CentreLoss):
    """alpha: sharpness. delta: the margin on both sides. sample_rate: the share of the classes that
    a step compares with, none for all at once."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"thesis": {}, "thesis_code": {}}

    own_weight_decay = 1e-4

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float = 32.0,
        delta: float = 0.1,
        sample_rate: float | None = None,
        lr: float | None = 1e-2,
        seed: int = 0,
        shards: Shards | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr, sample_rate, seed, shards)
        if alpha <= 0:
            raise ValueError(f"alpha must be positive, got {alpha}")
        self.alpha, self.delta = alpha, delta
        deviation = math.sqrt(2.0) / math.sqrt(num_classes)  # He et al., by the outputs
        self.proxies = self.centres(lambda rows: rows.normal_(0, deviation))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.sampling is not None:
            return self._on_drawn(self.sampling(self.proxies, embeddings, labels), labels)
        proxies = self.proxies.to(embeddings.dtype)
        sim = scaled_cosine(proxies, embeddings, self.alpha)  # [C, N], alpha times the cosine
        margin, own = self.alpha * self.delta, labels[None, :]

        def formula(sim: Tensor) -> Tensor:
            push = sim.scatter(0, own, -OFF).logsumexp(dim=1) + margin  # [C]
            pull = attraction(margin - sim.gather(0, own)[0], labels, self.num_classes)
            return pull + F.softplus(push).mean()

        def written(sim: Tensor) -> tuple[Tensor, Back]:
            push, slope = soft_maximum(sim.scatter(0, own, -OFF))  # [C, 1], [C, N]
            push.add_(margin)
            pull, by_own = _attraction(margin - sim.gather(0, own)[0], labels, self.num_classes)
            slope.mul_(push.sigmoid() / len(push)).scatter_(0, own, -by_own[None, :])
            return F.softplus(push).mean().add_(pull), lambda grad: (slope * grad,)

        price: Tensor = differentiable(formula, written, sim)
        return price

    def _on_drawn(self, drawn: Drawn, labels: Tensor) -> Tensor:
        """The means over all processes' proxies are sums of each one's part."""
        sim = scaled_cosine(drawn.centres, drawn.embeddings, self.alpha)  # [S, N]
        margin, own = self.alpha * self.delta, (drawn.place, drawn.item)
        share = len(drawn.place.unique()) / len(labels.unique())

        def formula(sim: Tensor) -> Tensor:
            push = sim.index_put(own, sim.new_tensor(-OFF)).logsumexp(dim=1) + margin  # [S]
            pull = attraction(margin - sim[own], drawn.place, len(sim))
            return share * pull + F.softplus(push).sum() / drawn.number

        def written(sim: Tensor) -> tuple[Tensor, Back]:
            push, slope = soft_maximum(sim.index_put(own, sim.new_tensor(-OFF)))  # [S, 1], [S, N]
            push.add_(margin)
            pull, by_own = _attraction(margin - sim[own], drawn.place, len(sim))
            slope.mul_(push.sigmoid() / drawn.number)[own] = -share * by_own
            value = share * pull + F.softplus(push).sum() / drawn.number
            return value, lambda grad: (slope * grad,)

        price: Tensor = differentiable(formula, written, sim)
        return drawn.shards.added(price)


def attraction(exponents: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The first term, from each item's -alpha * (S - delta) [N] with its own proxy: the mean over
    the classes present of log(1 + sum of exp)."""

    def formula(exponents: Tensor) -> Tensor:
        largest, _, total = _sums(exponents, labels, num_classes)
        present = torch.zeros_like(largest).index_fill(0, labels, 1.0).sum().clamp(min=1)
        return (total.log() + largest).sum() / present

    def written(exponents: Tensor) -> tuple[Tensor, Back]:
        value, slope = _attraction(exponents, labels, num_classes)
        return value, lambda grad: (slope * grad,)

    price: Tensor = differentiable(formula, written, exponents)
    return price


def _sums(
    exponents: Tensor, labels: Tensor, num_classes: int
) -> tuple[Tensor, Tensor, Tensor]:  # [C], [N], [C]
    """Each class's largest exponent, 0 being that of the 1, the items' exp less it, their sums."""
    largest = exponents.new_zeros(num_classes)
    largest = largest.scatter_reduce(0, labels, exponents.detach(), "amax")
    shares = (exponents - largest.index_select(0, labels)).exp()
    return largest, shares, largest.neg().exp().index_add(0, labels, shares)


def _attraction(exponents: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The first term and its gradient by the exponents."""
    largest, shares, total = _sums(exponents, labels, num_classes)
    present = torch.zeros_like(largest).index_fill_(0, labels, 1.0).sum().clamp_(min=1)
    slope = shares.div_(total.index_select(0, labels).mul_(present))
    return total.log_().add_(largest).sum() / present, slope

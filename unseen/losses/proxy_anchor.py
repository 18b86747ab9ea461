"""Proxy Anchor loss."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Shards
from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import OFF, scaled_cosine, soft_maximum
from unseen.losses.class_centers.base import CenterLoss
from unseen.losses.class_centers.sampling import Drawn


class ProxyAnchorLoss(CenterLoss):
    """ProxyAnchor: each proxy pulls its class's items and pushes all others, the hardest the most.

    Formula:
        S[i,c] the cosine between item i and proxy c, C all classes, C+ those present in the batch:

            L = mean over c in C+ of log(1 + sum over i in c of exp(-alpha * (S[i,c] - delta)))
              + mean over c in C  of log(1 + sum over other i of exp(alpha * (S[i,c] + delta)))

        (Equation 2.32 of Psomas, its gradient, lost the exponentials of the numerators.)

    Paper:
        S. Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020,
        https://arxiv.org/abs/2003.13911

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        alpha: sharpness; 32 (authors' code and Psomas' thesis).
        delta: the margin on both sides; 0.1 (likewise).
        sample_rate: the share of the classes that a step compares with (losses/class_centers);
            None: all.
        lr: of the proxies, decayed by 1e-4; 1e-2 (authors' code and Psomas' thesis: 100 times the
            network's 1e-4). For a head on frozen features at 1e-4 (docs/choosing.md) 1e-2 and 1e-1
            were equal, slower proxies 0.5 to 0.9 points of recall@1 behind. None: the run's.
        seed: of the drawing of classes by `sample_rate`.
        shards: processes that share the classes; a run fills it in.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import ProxyAnchorLoss
        >>> loss = ProxyAnchorLoss(num_classes=2, embedding_size=4)
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
        self.proxies = self.centers(lambda rows: rows.normal_(0, deviation))

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

        loss: Tensor = differentiable(formula, written, sim)
        return loss

    def _on_drawn(self, drawn: Drawn, labels: Tensor) -> Tensor:
        """The means over all processes' proxies are sums of each one's part."""
        sim = scaled_cosine(drawn.centers, drawn.embeddings, self.alpha)  # [S, N]
        margin, own = self.alpha * self.delta, (drawn.place, drawn.item)
        fraction = len(drawn.place.unique()) / len(labels.unique())

        def formula(sim: Tensor) -> Tensor:
            push = sim.index_put(own, sim.new_tensor(-OFF)).logsumexp(dim=1) + margin  # [S]
            pull = attraction(margin - sim[own], drawn.place, len(sim))
            return fraction * pull + F.softplus(push).sum() / drawn.number

        def written(sim: Tensor) -> tuple[Tensor, Back]:
            push, slope = soft_maximum(sim.index_put(own, sim.new_tensor(-OFF)))  # [S, 1], [S, N]
            push.add_(margin)
            pull, by_own = _attraction(margin - sim[own], drawn.place, len(sim))
            slope.mul_(push.sigmoid() / drawn.number)[own] = -fraction * by_own
            value = fraction * pull + F.softplus(push).sum() / drawn.number
            return value, lambda grad: (slope * grad,)

        loss: Tensor = differentiable(formula, written, sim)
        return drawn.shards.added(loss)


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

    loss: Tensor = differentiable(formula, written, exponents)
    return loss


def _sums(
    exponents: Tensor, labels: Tensor, num_classes: int
) -> tuple[Tensor, Tensor, Tensor]:  # [C], [N], [C]
    """Each class's largest exponent, 0 being that of the 1, the items' exp less it, their sums."""
    largest = exponents.new_zeros(num_classes)
    largest = largest.scatter_reduce(0, labels, exponents.detach(), "amax")
    fractions = (exponents - largest.index_select(0, labels)).exp()
    return largest, fractions, largest.neg().exp().index_add(0, labels, fractions)


def _attraction(exponents: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The first term and its gradient by the exponents."""
    largest, fractions, total = _sums(exponents, labels, num_classes)
    present = torch.zeros_like(largest).index_fill_(0, labels, 1.0).sum().clamp_(min=1)
    slope = fractions.div_(total.index_select(0, labels).mul_(present))
    return total.log_().add_(largest).sum() / present, slope

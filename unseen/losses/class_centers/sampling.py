"""Which class centres a step compares with, and the losses' sums over those that several processes
hold in parts.

Paper    X. An et al., Killing Two Birds with One Stone: Efficient and Robust Training of Face
         Recognition CNNs by Partial FC, CVPR 2022, https://arxiv.org/abs/2203.15565
Rule     of C classes a step draws rate * C: all that the batch holds, and others at random. The
         loss is that of a world in which there are no more classes. What is drawn depends on the
         seed and the number of draws alone, not on how many processes there are.
Shards   each process holds the centres of its part of the classes, their gradient and their
         optimiser's state, and computes the similarities to those of them that were drawn. Of a
         sum over classes it has its part; parts are added up, an item at a time, not a similarity
         at a time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.contracts import IntArray, Shards
from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import soft_maximum

_BLOCK = 2**16  # classes whose starting values are drawn at a time


class Alone:
    """One process holds all: the Shards of those that are not several."""

    def fraction(self, total: int) -> slice:
        return slice(0, total)

    def largest(self, values: Tensor) -> Tensor:
        return values

    def added(self, values: Tensor) -> Tensor:
        return values

    def shared(self, values: Tensor) -> Tensor:
        return values


@dataclass(frozen=True)
class Drawn:
    """What this process compares: all items with the centres that were drawn and are here."""

    embeddings: Tensor  # [N, D]
    centers: Tensor  # [S, D]
    item: Tensor  # [P] items whose own centre is here
    place: Tensor  # [P] that centre's place among them
    number: int  # of centres drawn in all processes
    shards: Shards

    def cross_entropy(self, logits: Tensor) -> Tensor:  # [N, S]
        """The mean over items of log(sum over all drawn classes of exp(logit)) - own logit."""
        num_items = len(logits)

        def joined(own: Tensor) -> tuple[Tensor, Tensor]:
            """The log of the sum over all processes [N], given that of this one's."""
            largest = self.shards.largest(own.detach())
            return self.shards.added((own - largest).exp()), largest

        def formula(logits: Tensor) -> Tensor:
            total, largest = joined(logits.logsumexp(dim=1))
            right = self.shards.added(logits[self.item, self.place].sum())
            return ((total.log() + largest).sum() - right) / num_items

        def written(logits: Tensor) -> tuple[Tensor, Back]:
            own, slope = self._soft_maximum(logits)  # [N, 1], [N, S]
            total, largest = joined(own[:, 0])
            whole = total.log() + largest  # [N]
            right = self.shards.added(logits[self.item, self.place].sum())
            slope.mul_((own[:, 0] - whole).exp().div_(num_items)[:, None])
            slope[self.item, self.place] -= 1 / num_items
            return (whole.sum() - right) / num_items, lambda grad: (slope * grad,)

        loss: Tensor = differentiable(formula, written, logits)
        return loss

    def _soft_maximum(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        if logits.shape[1]:
            return soft_maximum(logits)
        return logits.new_full((len(logits), 1), -math.inf), logits  # none of ours was drawn


class Sampling(nn.Module):
    """rate: the share of classes drawn in a step, up to 1. shards: the processes that hold them."""

    draws: Tensor  # so far; part of a checkpoint

    def __init__(self, num_classes: int, rate: float, seed: int, shards: Shards | None) -> None:
        super().__init__()
        if not 0 < rate <= 1:
            raise ValueError(f"sample_rate must be above 0 and at most 1, or none, got {rate}")
        self.num_classes, self.rate, self.seed = num_classes, rate, seed
        self.shards: Shards = Alone() if shards is None else shards
        self.own = self.shards.fraction(num_classes)  # the classes whose centres are here
        if self.own.start >= self.own.stop:
            raise ValueError(
                f"{num_classes} classes cannot be divided among more processes than that: leave "
                "loss.sample_rate out, or start fewer processes"
            )
        self.register_buffer("draws", torch.tensor(0))

    @property
    def number(self) -> int:
        """Classes that a step draws; more where the batch holds more."""
        return math.ceil(self.rate * self.num_classes)

    @property
    def is_sharded(self) -> bool:
        """Whether other processes hold some of the centres."""
        return bool(self.own.stop - self.own.start < self.num_classes)

    def start(self, size: int, fill: Callable[[Tensor], Tensor]) -> Tensor:  # [own, size]
        """Starting values of the centres that are here; the same for any number of processes."""
        made = torch.empty(self.own.stop - self.own.start, size)
        for first in range(0, self.num_classes, _BLOCK):
            block = fill(torch.empty(min(_BLOCK, self.num_classes - first), size))
            low, high = max(first, self.own.start), min(first + len(block), self.own.stop)
            if low < high:
                made[low - self.own.start : high - self.own.start] = block[
                    low - first : high - first
                ]
        return made

    def forward(self, centers: Tensor, embeddings: Tensor, labels: Tensor) -> Drawn:
        """centres [own, D] are those of this process; only rows that were drawn get a gradient."""
        classes = self._draw(labels)
        low, high = np.searchsorted(classes, (self.own.start, self.own.stop))
        here = torch.from_numpy(classes[low:high]).to(labels.device)
        rows = F.embedding(here - self.own.start, centers, sparse=True)
        inside = (labels >= self.own.start) & (labels < self.own.stop)
        item = inside.nonzero()[:, 0]
        return Drawn(
            self.shards.shared(embeddings),
            rows.to(embeddings.dtype),
            item,
            torch.searchsorted(here, labels[item]),
            len(classes),
            self.shards,
        )

    def _draw(self, labels: Tensor) -> IntArray:
        """The classes of this step, rising."""
        mixed = np.random.SeedSequence([self.seed, int(self.draws)])
        self.draws = self.draws + 1  # another tensor: a state that was taken stays as it is
        if self.rate == 1:
            return np.arange(self.num_classes)
        keys = np.random.default_rng(mixed).random(self.num_classes, dtype=np.float32)
        present = labels.unique().cpu().numpy()
        keys[present] = -1.0
        number = max(self.number, len(present))
        chosen = np.argpartition(keys, number - 1)[:number]
        return np.sort(chosen)

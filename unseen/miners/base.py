"""The door every miner shares, drawing by rows, and the rho switch of triplet miners.

A miner sees embeddings without gradient and gives index tuples. It draws from a generator of its own on
the CPU, so that every device and every process draws alike; `state_dict` keeps the generator's place.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen import tuples
from unseen.geometry import full_precision
from unseen.tuples import Pairs, Triplets


class Miner(ABC):
    """Abstract: chooses which tuples of a batch count. PRESETS holds the values of the sources."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Pairs | Triplets:
        references = None if ref_embeddings is None else full_precision(ref_embeddings.detach())
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.mine(
                full_precision(embeddings.detach()),
                references,
                *tuples.relations(labels, ref_labels),
            )

    @abstractmethod
    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Pairs | Triplets:
        """Tuples from raw embeddings [N, D], references [M, D] and the masks [N, M] of relations."""

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])


class TripletMiner(Miner):
    """Abstract: a miner of triplets, with the rho switch of Roth et al. 2020.

    With probability `switch` a triplet (a, p, n) becomes (a, a, j), j uniform among the other items of
    a's class: a ranking loss then pushes two items of one class apart, which keeps directions alive
    that only unseen classes need. (Replacing n by p alone would have no gradient.)
    """

    def __init__(self, switch: float = 0.0, seed: int = 0) -> None:
        super().__init__(seed)
        if not 0 <= switch <= 1:
            raise ValueError(f"switch is a probability, 0 to 1, got {switch}")
        self.switch = switch
        # apart from the miner's own draws, so that switching changes nothing else of the miner
        self.switch_generator = torch.Generator().manual_seed(seed + 1)

    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        mined = self.triplets(embeddings, references, pos, neg)
        if self.switch == 0 or references is not None:
            return mined
        anchor, positive, negative = mined
        chance = torch.rand(len(anchor), generator=self.switch_generator).to(anchor.device)
        chosen = chance < self.switch
        same_class = draw_per_row(pos[anchor], self.switch_generator)
        return Triplets(
            anchor,
            torch.where(chosen, anchor, positive),
            torch.where(chosen, same_class, negative),
        )

    @abstractmethod
    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        """The triplets before switching."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "generator": self.generator.get_state(),
            "switch_generator": self.switch_generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.switch_generator.set_state(state["switch_generator"])


def draw_per_row(
    allowed: Tensor, generator: torch.Generator, log_weights: Tensor | None = None
) -> Tensor:  # [N] int64
    """One column per row of a mask [N, M], uniformly or by log weights: Gumbel-max, no normalising.

    Stable for any range of weights. A row with nothing allowed gives an arbitrary column.
    """
    uniform = torch.rand(allowed.shape, generator=generator).clamp(1e-12, 1 - 1e-7)
    gumbel = -torch.log(-torch.log(uniform)).to(allowed.device)  # [N, M]
    scores = gumbel if log_weights is None else log_weights + gumbel.to(log_weights.dtype)
    return scores.masked_fill(~allowed, -math.inf).argmax(dim=1)


def valid_anchors(pos: Tensor, neg: Tensor) -> Tensor:  # [A] int64
    """Anchors with at least one positive and one negative."""
    return (pos.any(dim=1) & neg.any(dim=1)).nonzero(as_tuple=True)[0]

"""The abstract classes of miners, and drawing by rows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core import tuples
from unseen.core.geometry import OFF, full_precision
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import Pairs, Triplets


class Miner(ABC):
    """Abstract: chooses which tuples of a batch count. PRESETS holds the values of the sources.

    A miner sees embeddings without gradient and gives index tuples. It draws from a generator of
    its own on the CPU, so that every device and every process draws alike; `state_dict` keeps the
    generator's place.

    Args:
        seed: of the generator.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    kind: ClassVar[type[Pairs] | type[Triplets]] = Pairs

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(
        self,
        embeddings: Tensor,
        labels: AnyLabels,
        ref_embeddings: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
    ) -> Pairs | Triplets:
        references = None if ref_embeddings is None else full_precision(ref_embeddings.detach())
        if len(labels) == 0 or (ref_labels is not None and len(ref_labels) == 0):
            nothing = torch.zeros(0, dtype=torch.int64, device=embeddings.device)
            return self.kind(*(nothing for _ in self.kind._fields))
        rows, device = full_precision(embeddings.detach()), embeddings.device.type
        if not torch.is_autocast_enabled(device):
            return self.mine(rows, references, *tuples.relations(labels, ref_labels))
        with torch.autocast(device, enabled=False):
            return self.mine(rows, references, *tuples.relations(labels, ref_labels))

    @abstractmethod
    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Pairs | Triplets:
        """Tuples from raw embeddings [N, D], references [M, D] and the relations' masks [N, M]."""

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])


class TripletMiner(Miner):
    """Abstract: a miner of triplets, with the rho switch of Roth et al. 2020.

    With probability `switch` a triplet (a, p, n) becomes (a, a, j), j uniform among the other items
    of a's class: a ranking loss then pushes two items of one class apart, which keeps directions
    alive that only unseen classes need. (Replacing n by p alone would have no gradient.)
    """

    kind = Triplets

    def __init__(self, switch: float = 0.0, seed: int = 0) -> None:
        super().__init__(seed)
        if not 0 <= switch <= 1:
            raise ValueError(f"switch is a probability, 0 to 1, got {switch}")
        self.switch = switch
        # apart from the miner's own draws, so that switching changes nothing else of the miner
        apart = torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed))
        self.switch_generator = torch.Generator().manual_seed(int(apart))

    def mine(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        mined = self.triplets(embeddings, references, pos, neg)
        if self.switch == 0:
            return mined
        if references is not None:
            raise ValueError(
                "the rho switch puts the anchor in its positive's place, and the anchor is not "
                f"among the references: use switch=0 with a memory, got switch={self.switch}"
            )
        anchor, positive, negative = mined
        chance = torch.rand(2, len(anchor), generator=self.switch_generator).to(anchor.device)
        chosen = chance[0] < self.switch
        same_class = Members(pos).pick(anchor, chance[1])
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


class Members:
    """The allowed columns of each row of a mask [N, M], as one flat list."""

    def __init__(self, allowed: Tensor) -> None:
        row, self.column = allowed.nonzero(as_tuple=True)
        self.count = torch.bincount(row, minlength=len(allowed))  # [N]
        self.start = self.count.cumsum(0) - self.count  # [N]

    def at(self, row: Tensor, place: Tensor) -> Tensor:  # all [T]
        """The place-th allowed column of a row, counted from 0."""
        return self.column[self.start[row] + place]

    def pick(self, row: Tensor, uniform: Tensor) -> Tensor:  # all [T]
        """An allowed column of each row, by a uniform number in [0, 1). No row may be empty."""
        count = self.count[row]
        # rounding may lift the product of a number just below 1 to the count itself
        place = torch.minimum((uniform * count).long(), count - 1)
        return self.at(row, place)


def draw_per_row(
    allowed: Tensor,
    generator: torch.Generator,
    log_weights: Tensor | None = None,
    draws: int = 1,
) -> Tensor:  # [N, draws] int64
    """Columns of each row of a mask [N, M], with replacement, uniformly or by log weights.

    Inverts each row's cumulative counts or weights: one random number per draw instead of one per
    entry. Weights are relative to the row's largest, so any range of them is safe. A row with
    nothing allowed gives an arbitrary column.
    """
    if log_weights is None:
        cumulative = allowed.cumsum(dim=1, dtype=torch.int32)  # [N, M]
    else:
        # (softmax is several times faster than exp where weights are small)
        cumulative = torch.where(allowed, log_weights, -OFF).softmax(dim=1).cumsum(dim=1)
    uniform = torch.rand(len(allowed), draws, generator=generator, dtype=torch.float64)
    # strictly below the row's total even after rounding, so that no draw runs past the last entry
    target = uniform.to(allowed.device) * (1 - 2**-22) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, target.to(cumulative.dtype), right=True)
    return drawn.clamp_(max=allowed.shape[1] - 1)


def valid_anchors(pos: Tensor, neg: Tensor) -> Tensor:  # [A] int64
    """Anchors with at least one positive and one negative."""
    return tuples.complete(pos, neg).nonzero(as_tuple=True)[0]

"""What losses with one centre per class share where the classes are very many."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.core.contracts import Shards
from unseen.losses.base import LabelLoss
from unseen.losses.class_centers.sampling import Sampling


class CenterLoss(LabelLoss):
    """Abstract: compares with all centres, or with those that a step draws.

    sample_rate: the share of the classes drawn in a step; None: all, without any of what follows.
    Given, be it 1, several processes each hold the centres of some classes (`shards`), and only
    those drawn have a gradient: a sparse one, of rows."""

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        lr: float | None,
        sample_rate: float | None,
        seed: int,
        shards: Shards | None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        self.sampling = (
            None if sample_rate is None else Sampling(num_classes, sample_rate, seed, shards)
        )

    def centers(self, fill: Callable[[Tensor], Tensor]) -> nn.Parameter:
        """Those that this process holds, at their start."""
        if self.sampling is None:
            return nn.Parameter(fill(torch.empty(self.num_classes, self.embedding_size)))
        return nn.Parameter(self.sampling.start(self.embedding_size, fill))

    def sharded(self) -> dict[str, slice]:
        """Parameters of which this process holds some rows only, and which."""
        if self.sampling is None or not self.sampling.is_sharded:
            return {}
        return {name: self.sampling.own for name, _ in self.named_parameters()}

    def describe(self) -> dict[str, Any]:
        """How many classes there are, are compared with in a step, and are held here."""
        drawn = self.num_classes if self.sampling is None else self.sampling.number
        return {
            "classes": self.num_classes,
            "classes_in_a_step": drawn,
            "centers_here": len(next(self.parameters())),
        }

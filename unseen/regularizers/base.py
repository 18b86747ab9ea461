"""The door every regularizer shares: half precision raised, autocast off, shapes and labels checked.

`Regularizer.forward` has the one signature of contracts.Regularizer. A file in this folder fills in
`price`; what a user wants to see of it in the journal it notes there. One that needs the initial
network's descriptors of all training items sets `wants_pooled` and has a `prepare`.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.geometry import full_precision
from unseen.losses.base import check_batch


class Regularizer(nn.Module, ABC):
    """Abstract: one unweighted scalar from a network's output. PRESETS holds the sources' values."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    wants_pooled: bool = False  # whether prepare(pooled, labels) must come before the first step

    def __init__(self) -> None:
        super().__init__()
        self._noted: dict[str, Tensor] = {}

    def forward(self, output: Output, labels: Tensor) -> Tensor:
        check_batch(output.embeddings, labels, None, None)
        with torch.autocast(output.embeddings.device.type, enabled=False):
            return self.price(
                Output(
                    full_precision(output.embeddings),
                    full_precision(output.pooled),
                    None if output.maps is None else full_precision(output.maps),
                    None if output.heads is None else full_precision(output.heads),
                ),
                labels,
            )

    @abstractmethod
    def price(self, output: Output, labels: Tensor) -> Tensor:
        """The scalar; 0, attached to the graph, when the batch leaves it undefined."""

    def note(self, **values: Tensor) -> None:
        """Keeps scalars of this step for `report`."""
        self._noted.update({name: value.detach() for name, value in values.items()})

    def report(self) -> dict[str, Tensor]:
        """What shows that the regularizer acts: scalars of the last step, by name."""
        return dict(self._noted)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the regularizer's own parameters, given the run's learning rate."""
        own = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [{"params": own} | self.group_values(lr)] if own else []

    def group_values(self, lr: float) -> dict[str, Any]:
        """Learning rate and decay of its parameters: scalars that decay would only pull to 0."""
        return {"lr": lr, "weight_decay": 0.0}

"""The abstract class of regularizers."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.geometry import full_precision
from unseen.core.relevance import AnyLabels
from unseen.losses.base import check_batch


class Regularizer(nn.Module, ABC):
    """Abstract: one unweighted scalar from a network's output. PRESETS holds the sources' values.

    `forward` has the one signature of contracts.Regularizer: it raises half precision, switches
    autocast off and checks labels. A file in this folder fills in `on_output`; what a user wants to
    see of it in the event log it notes there. One that needs the initial network's descriptors of
    all training items has `prepare(pooled, labels)` and says `is_prepared`.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    usual_weight: ClassVar[float] = 1.0  # what a config that names no weight means
    preset_weights: ClassVar[dict[str, float]] = {}  # where a source used another

    exact_gradient: bool = True  # the gradient is the value's; not so where a part is detached
    lr_factor: float = 1.0  # the learning rate of its own parameters over the run's
    own_weight_decay: float | None = 0.0  # None: as the run decays the network

    def __init__(self) -> None:
        super().__init__()
        self._noted: dict[str, Tensor] = {}

    needs_classes: bool = False  # it has values of each class, not of pairs

    def forward(self, output: Output, labels: AnyLabels) -> Tensor:
        check_batch(output.embeddings, labels, None, None)
        with torch.autocast(output.embeddings.device.type, enabled=False):
            return self.on_output(
                Output(
                    full_precision(output.embeddings),
                    full_precision(output.pooled),
                    None if output.maps is None else full_precision(output.maps),
                    None if output.heads is None else full_precision(output.heads),
                ),
                labels,
            )

    @abstractmethod
    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        """The scalar; 0, attached to the graph, when the batch leaves it undefined."""

    def note(self, **values: Tensor) -> None:
        """Keeps scalars of this step for `report`."""
        self._noted.update({name: value.detach() for name, value in values.items()})

    def report(self) -> dict[str, Tensor]:
        """What shows that the regularizer acts: scalars of the last step, by name."""
        return dict(self._noted)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the regularizer's own parameters, given the run's learning rate."""
        inner: list[Any] = [m for m in self.modules() if m is not self and _has_groups(m)]
        groups = [group for module in inner for group in module.parameter_groups(lr)]
        theirs = {id(parameter) for module in inner for parameter in module.parameters()}
        own = [p for p in self.parameters() if p.requires_grad and id(p) not in theirs]
        if not own:
            return groups
        group = {"params": own, "lr": lr * self.lr_factor}
        if self.own_weight_decay is not None:
            group["weight_decay"] = self.own_weight_decay
        return [group, *groups]


def _has_groups(module: nn.Module) -> bool:
    """Losses inside a regularizer say themselves how their parameters learn."""
    return hasattr(module, "parameter_groups")


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Stops labels that are no training classes, before they index parameters."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"labels must be 0 to {num_classes - 1} with num_classes={num_classes}, "
            f"got {int(labels.min())} to {int(labels.max())}"
        )

"""What training minimises: miner -> loss + weighted regularizers, as named scalars.

The objective counts tuples and collects what regularizers report, so that formulas need not log.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.tuples import Pairs, Triplets, from_indices

Weighted = tuple[str, float, nn.Module]  # name, weight, regularizer


class MinedObjective(nn.Module):
    """`total` is the loss plus each regularizer times its weight."""

    def __init__(
        self,
        loss: nn.Module,
        miner: Callable[..., Any] | None = None,
        regularizers: Sequence[Weighted] = (),
    ) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner
        self.regularizers = nn.ModuleDict({name: part for name, _, part in regularizers})
        self.weights = {name: weight for name, weight, _ in regularizers}

    def forward(self, output: Output, labels: Tensor) -> dict[str, Tensor]:
        mined = None
        if self.miner is not None:
            mined = from_indices(self.miner(output.embeddings, labels))
        terms = {"loss": self.loss(output.embeddings, labels, mined)}
        total = terms["loss"]
        for name, regularizer in self.regularizers.items():
            terms[name] = regularizer(output, labels)
            total = total + self.weights[name] * terms[name]
            report: Mapping[str, Tensor] = getattr(regularizer, "report", dict)()
            terms |= {f"{name}.{key}": value for key, value in report.items()}
        return {"total": total, **terms, **counts(mined)}

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the loss's and the regularizers' own parameters."""
        groups: list[dict[str, Any]] = []
        for part in (self.loss, *self.regularizers.values()):
            own = list(part.parameters())
            if hasattr(part, "parameter_groups"):
                groups += part.parameter_groups(lr)
            elif own:  # a part of another library: the run's rate, no decay
                groups.append({"params": own, "lr": lr, "weight_decay": 0.0})
        return groups

    def miner_state(self) -> dict[str, Any]:
        """Where the miner's draws stand; empty for a miner that keeps none."""
        state: dict[str, Any] = getattr(self.miner, "state_dict", dict)()
        return state

    def load_miner_state(self, state: Mapping[str, Any]) -> None:
        miner: Any = self.miner
        if state:
            miner.load_state_dict(state)


def counts(mined: Pairs | Triplets | None) -> dict[str, Tensor]:
    """How many tuples were mined, and which share of triplets was switched."""
    if mined is None:
        return {}
    if isinstance(mined, Pairs):
        return {
            "positive_pairs": torch.tensor(float(len(mined.positive))),
            "negative_pairs": torch.tensor(float(len(mined.negative))),
        }
    switched = (mined.anchor == mined.positive).float()
    return {
        "triplets": torch.tensor(float(len(mined.anchor))),
        "switched": switched.mean() if len(switched) else torch.tensor(0.0),
    }

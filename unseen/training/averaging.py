"""The running average of a network's weights (EMA): smoother than any single step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Averaging:
    """The running average of a network's weights (EMA): smoother than any single step.

    decay: what stays of the average at a step in the long run; 0.999 is about 1,000 steps.

        average <- d average + (1 - d) weights after every step,   d = min(decay, (1 + t) / (10 +
        t))

    t counts steps: early averages forget the start soon. What batch norm keeps is averaged alike;
    counters are taken as they are. The averaged weights are evaluated and saved, the others go on.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must be between 0 and 1, got {decay}")
        self.network, self.decay = network, decay
        self.restart()

    def restart(self) -> None:
        """The average is what the network is now."""
        self.average = {name: value.clone() for name, value in self._current().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After step `step`, counted from 0."""
        current = self._current()
        floats = [name for name, value in current.items() if value.is_floating_point()]
        weight = 1 - min(self.decay, (1 + step) / (10 + step))
        averages, values = ([state[name] for name in floats] for state in (self.average, current))
        torch._foreach_lerp_(averages, values, weight)
        for name in current.keys() - set(floats):
            self.average[name].copy_(current[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The network has the averaged weights while the block runs."""
        current = {name: value.clone() for name, value in self._current().items()}
        self._write(self.average)
        try:
            yield
        finally:
            self._write(current)

    def state_dict(self) -> dict[str, Tensor]:
        return self.average

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self.average.items():
            value.copy_(state[name])

    def _current(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.network.state_dict().items()}

    @torch.no_grad()
    def _write(self, values: Mapping[str, Tensor]) -> None:
        for name, place in self._current().items():
            place.copy_(values[name])

"""The training loop: one step after another, each told to whoever listens."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unseen.core.contracts import Batch, Network
from unseen.core.geometry import full_precision
from unseen.training.distributed import Processes
from unseen.training.events import Epoch, Step
from unseen.training.gradients import Outcome, WholeBatch, reseed
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import ScheduledOptimizer
from unseen.training.step_checks import NonFiniteStepError, trouble_with

Mixup = Callable[[nn.Module, Tensor, Tensor, int], dict[str, Tensor]]  # see `manifold_mixup.py`


@dataclass
class Place:
    """Where training stands, and the sums of the running epoch."""

    epoch: int = 0
    step: int = 0  # since the start
    step_in_epoch: int = 0
    loss_sum: float = 0.0


class Trainer:
    """Descends on the network's and the objective's parameters, batch by batch.

    The trainer knows nothing of files, configs or evaluation. It owns what changes while training:
    network, objective, optimiser, learning rate and the place in the epoch. Everything random in a
    step comes from (seed, step), so a trainer loaded from its state goes on as if it had never
    stopped, bit for bit.
    """

    def __init__(
        self,
        network: Network,
        objective: MinedObjective,
        scheduled_optimizer: ScheduledOptimizer,
        device: torch.device,
        seed: int,
        mixup: Mixup | None = None,
        ema: float | None = None,
        processes: Processes | None = None,
        micro_batch: int | None = None,
    ) -> None:
        movable: Any = network  # the signature of `to` leaves memory_format out
        self.layout = _layout(network, device)
        self.network: Network = movable.to(device, memory_format=self.layout)
        self.objective = objective.to(device)
        self.scheduled_optimizer, self.place = scheduled_optimizer, Place()
        self.average = None
        if ema is not None:
            from unseen.training.averaging import Averaging  # noqa: PLC0415 - few ask for it

            self.average = Averaging(self.network, ema)
        self.device, self.seed, self.mixup = device, seed, mixup
        self.whole_batch = WholeBatch(
            self.network,
            self.objective,
            processes,
            micro_batch,
            scheduled_optimizer.backward,
            scheduled_optimizer.autocast,
        )
        remembers = objective.memory is not None or objective.label_filter is not None
        if mixup is not None and (self.whole_batch.is_chunked or remembers):
            raise ValueError(
                "manifold_mixup mixes any two images of the batch inside the network: it needs "
                "one process, micro_batch=none, memory=none and label_filter=none"
            )
        if mixup is not None and objective.relevance is not None:
            raise ValueError(
                f"manifold_mixup mixes images of classes, and {objective.relevance.kind} are "
                "none: leave one of them out"
            )
        self.embedded: list[Callable[[Tensor, Tensor], None]] = []  # told (indices, embeddings)

    def epoch(
        self, batches: Iterable[Batch], class_of: Tensor, after_step: Callable[[Step], None]
    ) -> Epoch:
        """Trains on the rest of the epoch's batches; `class_of` maps a data set's label to a class
        0..C-1. `after_step` is called with each step's event when the step is complete."""
        self.network.train()
        place, began, images = self.place, time.perf_counter(), 0
        for batch in batches:
            terms = self._step(batch, class_of)
            images += len(batch.labels) * self.whole_batch.processes.count
            place.step, place.step_in_epoch = place.step + 1, place.step_in_epoch + 1
            place.loss_sum += terms["total"]
            rate = images / (time.perf_counter() - began)
            after_step(Step(place.step, place.epoch, terms, images_per_second=round(rate, 1)))
        seconds = time.perf_counter() - began
        event = Epoch(
            epoch=place.epoch,
            step=place.step,
            train={"loss": place.loss_sum / max(1, place.step_in_epoch)},
            lr=self.scheduled_optimizer.lr(place.step),
            seconds=round(seconds, 2),
            images_per_second=round(images / seconds, 1),
        )
        self.place = Place(place.epoch + 1, place.step)
        return event

    def _step(self, batch: Batch, class_of: Tensor) -> dict[str, float]:
        layout = self.layout if batch.images.ndim == 4 else torch.contiguous_format
        images = batch.images.to(self.device, non_blocking=True, memory_format=layout)
        batch = Batch(images, class_of[batch.labels].to(self.device), batch.indices)
        step, miners = self.place.step, self.objective.miner_state()
        self.scheduled_optimizer.zero()
        terms = self._backward(batch)
        metadata = {name: term.item() for name, term in terms.items()}
        self._check(metadata, 0.0, batch, miners)
        norm = self.scheduled_optimizer.step(step)
        if (
            not self.scheduled_optimizer.scaler.is_enabled()
        ):  # a scale that is too high mends itself
            self._check(metadata, norm, batch, miners)
        if self.average is not None:
            self.average.update(step)
        return {
            name: round(value, 6) for name, value in {**metadata, "gradient_norm": norm}.items()
        }

    def _check(
        self, terms: Mapping[str, float], norm: float, batch: Batch, miners: Mapping[str, Any]
    ) -> None:
        why = trouble_with(terms["total"], norm)
        if why is not None:
            whole = self.whole_batch.gathered(batch)
            raise NonFiniteStepError(why, self.place.step, whole, miners, terms)

    def _backward(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of the whole batch; gradients are filled in."""
        seed = self.seed * 1_000_003 + self.place.step  # for dropout and its like
        with torch.random.fork_rng(devices=_devices(self.device)):
            if self.mixup is not None:
                outcome = self._mixed_backward(self.mixup, batch, seed)
            elif self.whole_batch.takes_at_once(len(batch.labels)):
                outcome = self._plain_backward(batch, seed)
            else:
                outcome = self.whole_batch(*batch, seed)
        for listener in self.embedded:
            listener(outcome.indices, outcome.embeddings)
        return outcome.terms

    def _plain_backward(self, batch: Batch, seed: int) -> Outcome:
        """Network, objective, backward."""
        reseed(seed, self.device)
        with self.scheduled_optimizer.autocast():
            output = self.network(batch.images)
            terms = self.objective(output, batch.labels, batch.indices)
        self.scheduled_optimizer.backward(terms["total"])
        return Outcome(terms, batch.indices, full_precision(output.embeddings.detach()))

    def _mixed_backward(self, mixup: Mixup, batch: Batch, seed: int) -> Outcome:
        """What is told of an image is its own embedding: it passes the network once more."""
        reseed(seed, self.device)
        with self.scheduled_optimizer.autocast():
            terms = mixup(self.objective, batch.images, batch.labels, self.place.step)
        self.scheduled_optimizer.backward(terms["total"])
        embeddings = batch.images.new_zeros(0)
        if self.embedded:
            self.network.eval()  # statistics of batch norms see each batch once
            with torch.no_grad(), self.scheduled_optimizer.autocast():
                embeddings = full_precision(self.network(batch.images).embeddings)
            self.network.train()
        return Outcome(terms, batch.indices, embeddings)

    @property
    def is_sharded(self) -> bool:
        """Whether each process has a state of its own: rows of class centres."""
        return bool(self.objective.sharded())

    def objective_state(self) -> dict[str, Tensor]:
        """That of the objective; at the first process with the rows of all."""
        state: dict[str, Tensor] = self.objective.state_dict()
        for name in self.objective.sharded():
            state[name] = self.whole_batch.processes.collected(state[name])
        return state

    def averaged(self) -> AbstractContextManager[None]:
        """While the block runs the network has the weights to evaluate and to keep."""
        return nullcontext() if self.average is None else self.average.applied()

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "objective": self.objective.state_dict(),
            "miner": self.objective.miner_state(),
            "scheduled_optimizer": self.scheduled_optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "place": dict(vars(self.place)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.objective.load_state_dict(state["objective"])
        self.objective.load_miner_state(state["miner"])
        self.scheduled_optimizer.load_state_dict(state["scheduled_optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.place = Place(**state["place"])


def _layout(network: nn.Module, device: torch.device) -> torch.memory_format:
    """Channels last, which is faster; but for networks whose backward step would then end the
    process: torch 2.13 writes beyond its memory on a CPU where a 1x1 convolution of fewer than 16
    channels skips pixels."""
    skipping = (
        isinstance(layer, nn.Conv2d)
        and layer.kernel_size == (1, 1)
        and max(layer.stride) > 1
        and layer.in_channels < 16
        for layer in network.modules()
    )
    return (
        torch.contiguous_format if device.type == "cpu" and any(skipping) else torch.channels_last
    )


def _devices(device: torch.device) -> list[torch.device]:
    return [] if device.type == "cpu" else [device]

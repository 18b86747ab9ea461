"""The training loop: one step after another, each told to whoever listens.

The trainer knows nothing of files, configs or evaluation. It owns what changes while training:
network, objective, optimiser, learning rate and the place in the epoch. Everything random in a step
comes from (seed, step), so a trainer loaded from its state goes on as if it had never stopped, bit
for bit.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unseen.contracts import Batch
from unseen.objective import MinedObjective
from unseen.training.manifold_mixup import ManifoldMixup

Event = dict[str, Any]
Listener = Callable[[Event], None]


@dataclass
class Place:
    """Where training stands, and the sums of the running epoch."""

    epoch: int = 0
    step: int = 0  # since the start
    step_in_epoch: int = 0
    loss_sum: float = 0.0


class Trainer:
    """AdamW on the network's and the objective's parameters, with a learning rate per step."""

    def __init__(
        self,
        network: nn.Module,
        objective: MinedObjective,
        lr: float,
        weight_decay: float,
        schedule: Callable[[int], float],
        device: torch.device,
        seed: int,
        mixup: ManifoldMixup | None = None,
    ) -> None:
        movable: Any = network  # the signature of `to` leaves memory_format out
        self.network: nn.Module = movable.to(device, memory_format=torch.channels_last)
        self.objective = objective.to(device)
        self.device, self.seed, self.mixup, self.place = device, seed, mixup, Place()
        self.embedded: list[Callable[[Tensor, Tensor], None]] = []  # told (indices, embeddings)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        groups = [{"params": trained}, *objective.parameter_groups(lr)]
        self.optimiser = torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimiser, schedule)

    def epoch(
        self, batches: Iterable[Batch], class_of: Tensor, after_step: Callable[[Event], None]
    ) -> Event:
        """Trains on the rest of the epoch's batches; `class_of` maps a data set's label to a class
        0..C-1. `after_step` is called with each step's event when the step is complete."""
        self.network.train()
        place, began, images = self.place, time.perf_counter(), 0
        for batch in batches:
            terms = self._step(batch, class_of)
            images += len(batch.labels)
            place.step, place.step_in_epoch = place.step + 1, place.step_in_epoch + 1
            place.loss_sum += terms["total"]
            rate = images / (time.perf_counter() - began)
            after_step(
                {
                    "event": "step",
                    "step": place.step,
                    "epoch": place.epoch,
                    "terms": terms,
                    "images_per_second": round(rate, 1),
                }
            )
        seconds = time.perf_counter() - began
        event = {
            "event": "epoch",
            "epoch": place.epoch,
            "step": place.step,
            "train": {"loss": place.loss_sum / max(1, place.step_in_epoch)},
            "lr": self.scheduler.get_last_lr()[0],
            "seconds": round(seconds, 2),
            "images_per_second": round(images / seconds, 1),
        }
        self.place = Place(place.epoch + 1, place.step)
        return event

    def _step(self, batch: Batch, class_of: Tensor) -> dict[str, float]:
        images = batch.images.to(self.device, memory_format=_layout(batch.images))
        labels = class_of[batch.labels].to(self.device)
        with torch.random.fork_rng(devices=_devices(self.device)):
            self._seed(self.seed * 1_000_003 + self.place.step)  # for dropout and its like
            terms = self._terms(images, labels, batch.indices)
        if not math.isfinite(terms["total"].item()):
            raise FloatingPointError(
                f"the loss became {terms['total'].item()} at step {self.place.step}: lower lr, or "
                f"look at the pictures of that batch, {batch.indices.tolist()[:8]} ..."
            )
        self.optimiser.zero_grad(set_to_none=True)
        terms["total"].backward()
        self.optimiser.step()
        self.scheduler.step()
        return {name: round(term.item(), 6) for name, term in terms.items()}

    def _seed(self, seed: int) -> None:
        """The generator of the device alone: `torch.manual_seed` also formats the whole stack for
        each kind of device that has not been used, which takes a third of a short step."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _terms(self, images: Tensor, labels: Tensor, indices: Tensor) -> dict[str, Tensor]:
        if self.mixup is not None:
            return self.mixup(self.network, self.objective, images, labels, self.place.step)
        output = self.network(images)
        for listener in self.embedded:
            listener(indices, output.embeddings.detach())
        terms: dict[str, Tensor] = self.objective(output, labels)
        return terms

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "objective": self.objective.state_dict(),
            "miner": self.objective.miner_state(),
            "optimiser": self.optimiser.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "place": dict(vars(self.place)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.objective.load_state_dict(state["objective"])
        self.objective.load_miner_state(state["miner"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.place = Place(**state["place"])


def _layout(images: Tensor) -> torch.memory_format:
    return torch.channels_last if images.ndim == 4 else torch.contiguous_format


def _devices(device: torch.device) -> list[torch.device]:
    return [] if device.type == "cpu" else [device]

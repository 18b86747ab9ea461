"""The training loop: one step after another, each told to whoever listens.

The trainer knows nothing of files, configs or evaluation. It owns what changes while training: network,
objective, optimiser and learning rate.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from unseen.contracts import Batch
from unseen.objective import MinedObjective

Event = dict[str, Any]
Listener = Callable[[Event], None]


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
    ) -> None:
        self.network = network.to(device, memory_format=torch.channels_last)
        self.objective = objective.to(device)
        self.device, self.step = device, 0
        groups = [{"params": list(network.parameters())}, *objective.parameter_groups(lr)]
        self.optimiser = torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimiser, schedule)

    def epoch(
        self, epoch: int, batches: Iterable[Batch], class_of: Tensor, listeners: list[Listener]
    ) -> Event:
        """Trains on the batches; `class_of` maps a data set's label to a training class 0..C-1."""
        self.network.train()
        began, images, totals = time.perf_counter(), 0, 0.0
        steps = 0
        for terms, size in self._steps(batches, class_of):
            images, totals, steps = images + size, totals + terms["total"], steps + 1
            seconds = time.perf_counter() - began
            event = {
                "event": "step",
                "step": self.step,
                "epoch": epoch,
                "terms": terms,
                "images_per_second": round(images / seconds, 1),
            }
            for listener in listeners:
                listener(event)
        seconds = time.perf_counter() - began
        return {
            "event": "epoch",
            "epoch": epoch,
            "step": self.step,
            "train": {"loss": totals / max(1, steps)},
            "lr": self.scheduler.get_last_lr()[0],
            "seconds": round(seconds, 2),
            "images_per_second": round(images / seconds, 1),
        }

    def _steps(
        self, batches: Iterable[Batch], class_of: Tensor
    ) -> Iterator[tuple[dict[str, float], int]]:
        for batch in batches:
            images = batch.images.to(self.device, memory_format=_layout(batch.images))
            labels = class_of[batch.labels].to(self.device)
            terms = self.objective(self.network(images), labels)
            if not math.isfinite(terms["total"].item()):
                raise FloatingPointError(
                    f"the loss became {terms['total'].item()} at step {self.step}: lower lr, or look at "
                    f"the pictures {batch.indices.tolist()[:8]} ..."
                )
            self.optimiser.zero_grad(set_to_none=True)
            terms["total"].backward()
            self.optimiser.step()
            self.scheduler.step()
            self.step += 1
            yield {name: round(term.item(), 6) for name, term in terms.items()}, len(labels)


def _layout(images: Tensor) -> torch.memory_format:
    return torch.channels_last if images.ndim == 4 else torch.contiguous_format

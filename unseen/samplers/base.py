"""The door every batch sampler shares: class index, epochs that repeat from (seed, epoch), a description.

A sampler is a true batch sampler: `DataLoader(dataset, batch_sampler=sampler)`. It yields lists of data
set positions of exactly `batch_size`. The batches of an epoch depend on the seed and the epoch alone, so
a resumed run sees the same ones: a sampler that remembers earlier epochs replays them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from unseen.contracts import IntArray


class ClassIndex:
    """Data set positions by class, made once: one stable sort."""

    def __init__(self, items: IntArray, labels: IntArray) -> None:
        if len(items) != len(labels):
            raise ValueError(f"items and labels differ in length: {len(items)}, {len(labels)}")
        order = np.argsort(labels, kind="stable")
        self.classes, starts = np.unique(labels[order], return_index=True)
        self.members: list[IntArray] = np.split(items[order], starts[1:])
        self.sizes = np.array([len(members) for members in self.members], dtype=np.int64)


class Deck:
    """Cards drawn without repeat; when too few are left, they come first and the rest is reshuffled.

    So no draw holds a card twice, and every card comes up about equally often.
    """

    def __init__(self, cards: IntArray, generator: np.random.Generator) -> None:
        self.cards, self.generator = cards, generator
        self.order = generator.permutation(len(cards))
        self.place = 0

    def draw(self, number: int) -> IntArray:
        if self.place + number > len(self.order):
            left = self.order[self.place :]
            others = self.generator.permutation(self.order[: self.place])
            self.order, self.place = np.concatenate([left, others]), 0
        drawn = self.order[self.place : self.place + number]
        self.place += number
        return self.cards[drawn]


class BatchSampler(ABC):
    """Abstract: lists of positions, the same for the same seed and epoch."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, items: IntArray, labels: IntArray, batch_size: int, seed: int) -> None:
        if batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {batch_size}")
        self.items, self.labels = np.asarray(items), np.asarray(labels)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0

    @abstractmethod
    def batches(self, epoch: int) -> list[IntArray]:
        """The batches of an epoch."""

    @abstractmethod
    def left_out(self) -> dict[str, str]:
        """Classes no batch can hold, and why."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches(self.epoch))

    def __len__(self) -> int:
        return max(1, len(self.items) // self.batch_size)

    def describe(self) -> dict[str, Any]:
        """What the current epoch covers."""
        batches = self.batches(self.epoch)
        drawn, times = np.unique(np.concatenate(batches), return_counts=True)
        label_of = dict(zip(self.items.tolist(), self.labels.tolist(), strict=True))
        return {
            "batches": len(batches),
            "classes": len(np.unique(self.labels)),
            "classes_drawn": len({label_of[item] for item in drawn.tolist()}),
            "images": len(self.items),
            "images_drawn": len(drawn),
            "most_draws_of_an_image": int(times.max()),
            "batches_with_a_repeat": sum(len(np.unique(b)) < len(b) for b in batches),
            "left_out": self.left_out(),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.set_epoch(state["epoch"])

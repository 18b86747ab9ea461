"""Base class of the batch samplers: classes, decks, repeatable epochs, a description of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from unseen.core.contracts import IntArray
from unseen.samplers.embedded.background import Background
from unseen.samplers.embedded.bank import MemoryBank


class ClassIndex:
    """Data set positions by class, made once: one stable sort."""

    def __init__(self, items: IntArray, labels: IntArray) -> None:
        order = np.argsort(labels, kind="stable")
        self.classes, starts = np.unique(labels[order], return_index=True)
        self.members: list[IntArray] = np.split(items[order], starts[1:])
        self.sizes = np.array([len(members) for members in self.members], dtype=np.int64)

    def left_out(self, smallest: int, largest: int | None = None) -> dict[str, int]:
        """How many classes have too few or too many images, by what is wrong with them."""
        ones = int((self.sizes == 1).sum()) if smallest > 1 else 0
        few = int((self.sizes < smallest).sum()) - ones
        many = int((self.sizes > largest).sum()) if largest is not None else 0
        counted = {
            "one image, no positive pair": ones,
            f"fewer than {smallest} images": few,
            f"more than {largest} images": many,
        }
        return {why: count for why, count in counted.items() if count}


class Deck:
    """Cards drawn round after round, every card once a round and no card twice in a draw.

    A draw that goes over the end of a round takes what is left of it and cards of the next round
    that are not among them; those come later in that round.
    """

    def __init__(self, cards: IntArray, generator: np.random.Generator) -> None:
        self.cards, self.generator = cards, generator
        self.waiting = generator.permutation(len(cards))  # what is left of this round

    def draw(self, number: int) -> IntArray:
        drawn, self.waiting = self.waiting[:number], self.waiting[number:]
        missing = number - len(drawn)
        if missing:
            others = np.setdiff1d(np.arange(len(self.cards)), drawn)
            others = self.generator.permutation(others)
            self.waiting = self.generator.permutation(np.append(others[missing:], drawn))
            drawn = np.append(drawn, others[:missing])
        return self.cards[drawn]


class Replayed:
    """Epochs that follow from the ones before them: an earlier one is reached by starting again."""

    def __init__(self, start: Callable[[], Iterator[list[IntArray]]]) -> None:
        self.start = start
        self.epochs, self.next = start(), 0

    def __getitem__(self, epoch: int) -> list[IntArray]:
        if epoch < self.next:
            self.epochs, self.next = self.start(), 0
        for _ in range(self.next, epoch):
            next(self.epochs)
        self.next = epoch + 1
        return next(self.epochs)


def distinct(
    sizes: IntArray, number: int, generator: np.random.Generator
) -> IntArray:  # [R, number]
    """For each row `number` different values below its size, each subset equally likely (Floyd)."""
    chosen = np.empty((len(sizes), number), dtype=np.int64)
    for column in range(number):
        last = sizes - number + column
        drawn = generator.integers(last + 1)
        taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, last, drawn)
    return chosen


class BatchSampler(ABC):
    """Abstract: lists of data set positions, for `DataLoader(dataset, batch_sampler=sampler)`.

    The batches of an epoch depend on the seed and the epoch alone, so that a resumed run sees the
    same ones: a sampler that remembers earlier epochs replays them. Samplers that read embeddings
    stand in `embedded/`; their state also holds the memory bank and the batches of the epoch under
    way.

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        seed: of all draws.
        steps: batches in an epoch; None: items / batch_size.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    fills_batches: ClassVar[bool] = True  # every batch has exactly batch_size items
    bank: MemoryBank | None = None  # embedded samplers have one
    background: Background | None = None  # what draws later batches while an epoch goes on

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        seed: int,
        steps: int | None = None,
    ) -> None:
        self.items = np.asarray(items, dtype=np.int64)
        self.labels = np.asarray(labels, dtype=np.int64)
        if len(self.items) != len(self.labels) or not len(self.items):
            raise ValueError(
                "items and labels must be equally many and not empty: the positions that are drawn "
                f"from, and the label of each; got {len(self.items)} and {len(self.labels)}"
            )
        if batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {batch_size}")
        if seed < 0 or (steps is not None and steps < 1):
            raise ValueError(
                f"seed must be 0 or more and steps 1 or more, got seed={seed}, steps={steps}"
            )
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0
        self.steps = max(1, len(self.items) // batch_size) if steps is None else steps
        self._known: list[IntArray] | None = None  # the batches of this epoch, once drawn

    @abstractmethod
    def draw(self, epoch: int) -> list[IntArray]:
        """The batches of an epoch, `steps` of them; fewer where the background draws the rest."""

    @abstractmethod
    def left_out(self) -> dict[str, int]:
        """How many classes no batch can hold, by the reason."""

    def batches(self) -> list[IntArray]:
        """The batches of the current epoch, drawn once and kept until the epoch changes: all of
        them, or as many as are known."""
        if self._known is None:
            self._known = self.draw(self.epoch)
        return self._known

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._known = None
            if self.background is not None:
                self.background.restart()
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.steps):
            if number == len(self.batches()) and self.background is not None:
                self._known = self.batches() + self.background.next()
            yield self.batches()[number].tolist()

    def __len__(self) -> int:
        return self.steps

    def describe(self) -> dict[str, Any]:
        """What the current epoch covers, as far as its batches are known."""
        batches = [np.unique(batch, return_counts=True) for batch in self.batches()]
        drawn, times = np.unique(np.concatenate(self.batches()), return_counts=True)
        order = np.argsort(self.items)
        items, label_of = self.items[order], self.labels[order]
        classes = [np.unique(label_of[_all_of(items, batch)]) for batch, _ in batches]
        return {
            "batches": len(batches),
            "classes": len(np.unique(self.labels)),
            "classes_drawn": len(np.unique(np.concatenate(classes))),
            "fewest_classes_in_a_batch": min(map(len, classes)),
            "images": len(np.unique(items)),
            "images_drawn": len(drawn),
            "most_draws_of_an_image": int(times.max()),
            "batches_with_a_repeat": sum(int(repeats.max() > 1) for _, repeats in batches),
            "left_out": self.left_out(),
        }

    def state_dict(self) -> dict[str, Any]:
        if self.bank is None:
            return {"epoch": self.epoch}
        state: dict[str, Any] = {"epoch": self.epoch, "bank": self.bank.state_dict()}
        if self.background is not None:
            while self.background.waiting:
                self._known = self.batches() + self.background.next()
            state["steps_done"] = self.background.done
        batches = None if self._known is None else torch.from_numpy(np.stack(self._known))
        return state | {"batches": batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epoch, self._known = state["epoch"], None
        if self.bank is not None:
            self.bank.load_state_dict(state["bank"])
            self._known = None if state["batches"] is None else list(state["batches"].numpy())
        if self.background is not None:
            self.background.restart(state["steps_done"])


def _all_of(items: IntArray, wanted: IntArray) -> IntArray:
    """Every place of wanted items among sorted ones: with several labels an item has several."""
    start, stop = (np.searchsorted(items, wanted, side) for side in ("left", "right"))
    count = stop - start
    return np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())


def check_groups(batch_size: int, per_class: int) -> None:
    """Stops a batch that is not made of whole groups."""
    if per_class < 1 or batch_size % per_class:
        nearest = batch_size // per_class * per_class if 1 <= per_class <= batch_size else per_class
        raise ValueError(
            f"batch_size must be a multiple of per_class, and per_class at least 1, "
            f"got {batch_size} and {per_class}: try batch_size={max(2, nearest)}"
        )


def check_enough_classes(available: int, batch_size: int, per_class: int) -> None:
    """Stops a batch that wants more classes than there are."""
    if available < batch_size // per_class:
        raise ValueError(
            f"a batch of {batch_size} needs {batch_size // per_class} classes with {per_class} "
            f"images each, the training classes that can be drawn are {available}: "
            f"lower batch_size or raise per_class"
        )

"""Random-with-pair sampler (SPC-R)."""

from typing import Any, ClassVar

import numpy as np

from unseen.core.contracts import IntArray
from unseen.samplers.base import BatchSampler, ClassIndex


class RandomWithPairSampler(BatchSampler):
    """Random with a pair (SPC-R): random images, and one more of the class of one of them.

    Rule:
        b - 1 different images, uniformly; the last one is another image of the class of a random
        earlier one. If no earlier one has another image left, one of them makes way for an image
        that has.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        class_uniform: a class is drawn first and then its image, so that small classes are as
            frequent as large ones, as the released code does (which may also take the same image
            twice; here all images are different).
        steps: batches in an epoch; None: items / batch_size.
        seed: of all draws.

    Use:
        the control that shows what a class-balanced batch is worth: with many classes (Stanford
        Online Products) losses on pairs lose ten points of recall, classification loses none.

    Example:
        >>> import numpy as np
        >>> from unseen.samplers import RandomWithPairSampler
        >>> sampler = RandomWithPairSampler(np.arange(20), np.arange(20) // 2, batch_size=5)
        >>> [len(set(batch)) for batch in sampler]
        [5, 5, 5, 5]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"class_uniform": True},
    }

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        class_uniform: bool = False,
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, seed, steps)
        if batch_size > len(self.items):
            raise ValueError(
                f"batch_size must be at most the {len(self.items)} training images, "
                f"got {batch_size}"
            )
        index = ClassIndex(np.arange(len(self.items)), self.labels)
        if index.sizes.max() < 2:
            raise ValueError("no training class has two images: there is no pair to draw")
        self._members, self._sizes = index.members, index.sizes
        self._class_of = np.searchsorted(index.classes, self.labels)
        chance = 1 / (len(self._sizes) * self._sizes[self._class_of])
        self._chance = chance / chance.sum() if class_uniform else None

    def left_out(self) -> dict[str, int]:
        return {}

    def draw(self, epoch: int) -> list[IntArray]:
        generator = np.random.default_rng([self.seed, epoch])
        return [self.items[self._drawn(generator)] for _ in range(self.steps)]

    def _drawn(self, generator: np.random.Generator) -> IntArray:
        batch = generator.choice(
            len(self.items), self.batch_size - 1, replace=False, p=self._chance
        )
        classes = self._class_of[batch]
        here = np.bincount(classes, minlength=len(self._sizes))
        anchors = np.flatnonzero(self._sizes[classes] > here[classes])
        if len(anchors):
            anchor = int(generator.choice(anchors))
        elif here.max() > 1:  # a pair is there already and its class exhausted: any image will do
            return self._with_one_of(np.arange(len(self.items)), batch, generator)
        else:
            anchor = int(generator.integers(len(batch)))
            batch[anchor] = generator.choice(np.flatnonzero(self._sizes[self._class_of] > 1))
        return self._with_one_of(self._members[self._class_of[batch[anchor]]], batch, generator)

    @staticmethod
    def _with_one_of(wanted: IntArray, batch: IntArray, generator: np.random.Generator) -> IntArray:
        return np.append(batch, generator.choice(np.setdiff1d(wanted, batch)))

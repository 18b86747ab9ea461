"""Whole-classes sampler."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from unseen.core.contracts import IntArray
from unseen.samplers.base import BatchSampler, ClassIndex, Replayed


class WholeClassesSampler(BatchSampler):
    """Whole classes: all images of one class after another until the batch is full.

    Rule:
        classes come from a shuffled list that goes on over the epochs, so all come equally often.
        overflow="skip": the class that would not fit begins the next batch; no class is ever
        split, a batch may be smaller than batch_size by up to one class less one image.
        overflow="truncate": that class gives as many random images as fit, or none if only one
        does. Classes with one image are left out, as are, with "skip", those larger than a batch.

    Paper:
        Y. Li et al., Deep Metric Learning with Density Adaptivity, IEEE TMM 2020,
        https://arxiv.org/abs/1909.03909: their batches on Stanford Online Products (5.3 images per
        class, batch 100: about 18 classes); the rule for the last class is ours, they give none.

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: at most so many items in a batch.
        overflow: "skip" or "truncate" the class that does not fit.
        steps: batches in an epoch; None: items / batch_size.
        seed: of all draws.

    Use:
        statistics of whole classes, such as the density regularizer's, on data with small classes.

    Example:
        >>> import numpy as np
        >>> from unseen.samplers import WholeClassesSampler
        >>> sampler = WholeClassesSampler(np.arange(20), np.arange(20) // 4, batch_size=10)
        >>> [len(batch) for batch in sampler]
        [8, 8]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"density": {}}

    fills_batches = False

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        overflow: str = "skip",
        steps: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, seed, steps)
        if overflow not in ("skip", "truncate"):
            raise ValueError(f"overflow must be skip or truncate, got {overflow!r}")
        self._index = ClassIndex(self.items, self.labels)
        self._largest = batch_size if overflow == "skip" else None
        self._cuts = overflow == "truncate"
        fits = self._index.sizes <= (self._largest or len(self.items))
        self._eligible = np.flatnonzero((self._index.sizes > 1) & fits)
        smallest = np.sort(self._index.sizes[self._eligible])[:2]
        if len(smallest) < 2 or (not self._cuts and smallest.sum() > batch_size):
            raise ValueError(
                f"no two classes of at least two images fit into a batch of {batch_size}: "
                "raise batch_size, or use m_per_class"
            )
        self._walked = Replayed(self._walk)

    def left_out(self) -> dict[str, int]:
        return self._index.left_out(2, self._largest)

    def draw(self, epoch: int) -> list[IntArray]:
        return self._walked[epoch]

    def _walk(self) -> Iterator[list[IntArray]]:
        generator = np.random.default_rng(self.seed)
        waiting: list[int] = []
        while True:
            yield [self._batch(waiting, generator) for _ in range(self.steps)]

    def _batch(self, waiting: list[int], generator: np.random.Generator) -> IntArray:
        """Takes classes off the list's end; a list that runs out is renewed."""
        taken: list[int] = []
        chunks: list[IntArray] = []
        room = self.batch_size
        while len(taken) < len(self._eligible):
            if not waiting:  # those of this batch come last, for none may come twice
                again = generator.permutation(np.array(taken, dtype=np.int64))
                fresh = generator.permutation(np.setdiff1d(self._eligible, again))
                waiting.extend([*again.tolist(), *fresh.tolist()])
            members = self._index.members[waiting[-1]]
            if len(members) > room:
                if self._cuts and room > 1:
                    taken.append(waiting.pop())
                    chunks.append(generator.choice(members, room, replace=False))
                break
            taken.append(waiting.pop())
            chunks.append(members)
            room -= len(members)
        return np.concatenate(chunks)

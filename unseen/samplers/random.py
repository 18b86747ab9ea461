"""Random sampler."""

import numpy as np

from unseen.core.contracts import IntArray
from unseen.samplers.base import BatchSampler


class RandomSampler(BatchSampler):
    """Random: the images shuffled once per epoch and split into batches; the rest is dropped.

    Rule:
        no image comes twice in an epoch; the images of the incomplete batch are not seen in it,
        others each epoch. Classes are as frequent as in the data.

    Paper:
        B. Psomas, thesis on deep metric learning: used with the losses that have no sampling rule.

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        seed: of all draws.

    Use:
        classification and proxy losses. With many classes most images of a batch have no positive
        in it: losses on pairs need m_per_class.

    Example:
        >>> import numpy as np
        >>> from unseen.samplers import RandomSampler
        >>> sampler = RandomSampler(np.arange(20), np.arange(20) // 5, batch_size=8)
        >>> [len(batch) for batch in sampler]
        [8, 8]
    """

    def __init__(self, items: IntArray, labels: IntArray, batch_size: int, seed: int = 0) -> None:
        super().__init__(items, labels, batch_size, seed)
        first = np.unique(self.items, return_index=True)[1]  # of an image with several labels
        self._images = self.items[np.sort(first)]
        self.steps = max(1, len(self._images) // batch_size)
        if batch_size > len(self._images):
            raise ValueError(
                f"batch_size must be at most the {len(self._images)} training images, "
                f"got {batch_size}"
            )

    def left_out(self) -> dict[str, int]:
        return {}

    def draw(self, epoch: int) -> list[IntArray]:
        shuffled = np.random.default_rng([self.seed, epoch]).permutation(self._images)
        return list(shuffled[: self.steps * self.batch_size].reshape(self.steps, self.batch_size))

"""Base classes of the samplers that read embeddings: memory bank, pool, candidates."""

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.samplers.base import (
    BatchSampler,
    ClassIndex,
    check_enough_classes,
    check_groups,
    distinct,
)
from unseen.samplers.embedded.bank import MemoryBank


class EmbeddedSampler(BatchSampler):
    """Abstract: chooses images by their embeddings in a memory bank.

    Before an epoch the trainer asks `is_due()` and, if so, gives the embeddings of all items to
    `fill`; after each step it gives those of the batch to `update`. The batches of an epoch are
    drawn when it begins, from the bank as it then is, unless a search in the background draws the
    later ones. refresh_every: epochs between full passes, 0 for the first only.
    """

    bank: MemoryBank

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int,
        refresh_every: int,
        normalize: bool,
        seed: int,
    ) -> None:
        super().__init__(items, labels, batch_size, seed)
        check_groups(batch_size, per_class)
        if refresh_every < 0:
            raise ValueError(f"refresh_every must be 0 (never) or more epochs, got {refresh_every}")
        self.per_class = per_class
        self.refresh_every, self.normalize = refresh_every, normalize
        self.num_groups = batch_size // per_class
        # places among the items, not data set positions: they index the bank's rows
        self.index = ClassIndex(np.arange(len(self.items)), self.labels)
        self.bank = MemoryBank(self.items)

    def is_due(self) -> bool:
        """Whether all items are to be embedded before the current epoch."""
        filled_in = self.bank.filled_in
        wait = self.refresh_every
        return filled_in < 0 or (wait > 0 and self.epoch >= filled_in + wait)

    def fill(self, embeddings: Tensor) -> None:
        """The embeddings of all items [n, D] in the order of `items`, before the current epoch."""
        self.bank.fill(embeddings, self.epoch)
        self._known = None

    def update(self, indices: Tensor, embeddings: Tensor) -> None:
        """The embeddings of a batch [N, D] by data set positions [N], after a step."""
        self.bank.update(indices, embeddings)
        if self.background is not None:
            self.background.after_step()


class PooledSampler(EmbeddedSampler):
    """Abstract: each batch is chosen by itself, from a pool of pool_size rows of the bank."""

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int,
        pool_size: int,
        refresh_every: int,
        normalize: bool,
        seed: int,
    ) -> None:
        super().__init__(items, labels, batch_size, per_class, refresh_every, normalize, seed)
        if pool_size < batch_size:
            raise ValueError(f"pool_size must be at least batch_size={batch_size}, got {pool_size}")
        self.pool_size = pool_size

    def draw(self, epoch: int) -> list[IntArray]:
        generator = np.random.default_rng([self.seed, epoch])
        return [self.items[self.select(generator)] for _ in range(self.steps)]

    @abstractmethod
    def select(self, generator: np.random.Generator) -> IntArray:  # [b] places among the items
        """One batch from the bank."""


class MatchingSampler(PooledSampler):
    """Abstract: of some random candidates for a batch, the one most like a large pool (K. Roth et
    al., Revisiting Training Strategies, ICML 2020, https://arxiv.org/abs/2002.08473).

    The pool: pool_size / per_class draws of a class, each with per_class of its images, and each
    image once; the first draws take different classes, so that every candidate finds enough of
    them. A candidate: different classes of the pool, and per_class different images of each.
    """

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 2,
        pool_size: int = 1024,
        num_candidates: int = 10,
        refresh_every: int = 0,
        normalize: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            items, labels, batch_size, per_class, pool_size, refresh_every, normalize, seed
        )
        if num_candidates < 1:
            raise ValueError(f"num_candidates must be at least 1, got {num_candidates}")
        self.num_candidates = num_candidates
        eligible = np.flatnonzero(self.index.sizes >= max(2, per_class))
        check_enough_classes(len(eligible), batch_size, per_class)
        self._sizes = self.index.sizes[eligible]
        self._flat = np.concatenate([self.index.members[c] for c in eligible])
        self._starts = np.cumsum(self._sizes) - self._sizes

    def left_out(self) -> dict[str, int]:
        return self.index.left_out(max(2, self.per_class))

    def select(self, generator: np.random.Generator) -> IntArray:
        pool, sizes = self._pool(generator)
        candidates = self._candidates(sizes, generator)  # [m, b]
        rows = self.bank.read(self._flat[pool], self.normalize)
        costs = self.costs(rows, torch.from_numpy(candidates))
        best = candidates[int(costs.argmin())]
        return self._flat[pool[best]]

    @abstractmethod
    def costs(self, pool: Tensor, candidates: Tensor) -> Tensor:  # [p, D], [m, b] -> [m]
        """How far each candidate, given as rows of the pool, is from the whole pool."""

    def _pool(self, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Places in the flat list, sorted and so grouped by class, and the size of each group."""
        num_classes = len(self._sizes)
        others = self.pool_size // self.per_class - self.num_groups
        classes = np.concatenate(
            [
                generator.permutation(num_classes)[: self.num_groups],
                generator.integers(num_classes, size=others),
            ]
        )
        images = distinct(self._sizes[classes], self.per_class, generator)  # [draws, per_class]
        pool = np.unique(self._starts[classes][:, None] + images)
        owner = np.searchsorted(self._starts, pool, side="right")
        return pool, np.unique(owner, return_counts=True)[1]

    def _candidates(self, sizes: IntArray, generator: np.random.Generator) -> IntArray:  # [m, b]
        keys = generator.random((self.num_candidates, len(sizes)))
        classes = np.argsort(keys, axis=1)[:, : self.num_groups]  # [m, groups], no class twice
        images = distinct(sizes[classes].ravel(), self.per_class, generator)
        starts = (np.cumsum(sizes) - sizes)[classes].ravel()
        return (starts[:, None] + images).reshape(self.num_candidates, self.batch_size)

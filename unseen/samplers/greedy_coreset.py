"""Greedy-coreset sampler (GC)."""

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.core.geometry import squared_distance
from unseen.samplers.base import check_enough_classes
from unseen.samplers.embedded.base import PooledSampler

SOFT = 0.97  # the share of the pool that is nearer than the candidates of a soft pick


class GreedyCoresetSampler(PooledSampler):
    """Greedy coreset (GC): images that cover a large random pool of the embedding space evenly.

    Rule:
        from pool_size random rows of the memory bank, farthest-first: a random one, then each time
        the one farthest from all taken so far; within a factor of 2 of the smallest possible
        covering radius. Each of these batch_size / per_class anchors is joined by per_class - 1
        other images of its class, not yet in the batch as far as there are any.
        (The released code looks up the positions of one pool in another, so that its batches are
        close to random; here there is one pool.)

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473; after O.
        Sener, S. Savarese, Active Learning for Convolutional Neural Networks, ICLR 2018

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        per_class: items of a class in a batch; 2 (paper).
        pool_size: rows the batch is to cover; 1024 (paper), 512 (code).
        soft: take a random one of the farthest 3 % instead of the farthest.
        distinct_classes: each class gives one anchor only.
        refresh_every: epochs between full passes through the network; 0: the first only.
        normalize: compare unit embeddings.
        seed: of all draws.

    Use:
        a study of batches: differences to m_per_class are small in the paper.

    Example:
        >>> import numpy as np, torch
        >>> from unseen.samplers import GreedyCoresetSampler
        >>> sampler = GreedyCoresetSampler(np.arange(40), np.arange(40) // 4, 8, pool_size=16)
        >>> sampler.fill(torch.randn(40, 3))
        >>> [len(batch) for batch in sampler]
        [8, 8, 8, 8, 8]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"pool_size": 512},
    }

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 2,
        pool_size: int = 1024,
        soft: bool = False,
        distinct_classes: bool = False,
        refresh_every: int = 0,
        normalize: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            items, labels, batch_size, per_class, pool_size, refresh_every, normalize, seed
        )
        self.soft, self.distinct_classes = soft, distinct_classes
        sizes = self.index.sizes
        if distinct_classes:
            check_enough_classes(int((sizes > 1).sum()), batch_size, per_class)
        self._class_of = np.searchsorted(self.index.classes, self.labels)
        self._eligible = np.flatnonzero(sizes[self._class_of] > 1)  # places among the items
        if len(self._eligible) < self.num_groups:
            raise ValueError(
                f"a batch of {batch_size} needs {self.num_groups} images of classes with at least "
                f"two, there are {len(self._eligible)}: lower batch_size"
            )

    def left_out(self) -> dict[str, int]:
        return self.index.left_out(2)

    def select(self, generator: np.random.Generator) -> IntArray:
        size = min(self.pool_size, len(self._eligible))
        pool = generator.choice(self._eligible, size, replace=False)
        groups = self._class_of[pool] if self.distinct_classes else np.arange(size)
        rows = self.bank.read(pool, self.normalize)
        picks = farthest_first(rows, groups, self.num_groups, generator, self.soft)
        return self._completed(pool[picks], generator)

    def _completed(self, anchors: IntArray, generator: np.random.Generator) -> IntArray:
        taken = np.zeros(len(self.items), dtype=bool)
        taken[anchors] = True
        batch = []
        for anchor in anchors:
            others = self.index.members[self._class_of[anchor]]
            free = others[~taken[others]]
            mates = generator.permutation(free)[: self.per_class - 1]
            if len(mates) < self.per_class - 1:  # the class is exhausted: repeat some of it
                missing = self.per_class - 1 - len(mates)
                mates = np.append(mates, generator.choice(others[others != anchor], missing))
            taken[mates] = True
            batch.extend([anchor, *mates])
        return np.array(batch)


def farthest_first(
    rows: Tensor,  # [p, D]
    groups: IntArray,  # [p]; after a pick the rest of its group waits until nothing else is left
    number: int,
    generator: np.random.Generator,
    soft: bool = False,
) -> IntArray:  # [number] different places in the pool
    """Starts at a random row; then always the row farthest from all picked ones."""
    radius = np.full(len(rows), np.inf, dtype=np.float32)
    picks = [int(generator.integers(len(rows)))]
    while True:
        last = picks[-1]
        gap = squared_distance(rows[last : last + 1], rows)[0].numpy()
        radius = np.minimum(radius, gap)
        radius[groups == groups[last]] = -1.0
        radius[picks] = -2.0
        if len(picks) == number:
            return np.array(picks)
        if soft:
            farthest = radius.max()  # below 0: only groups that wait are left
            near = max(np.quantile(radius, SOFT), min(farthest, 0.0))
            picks.append(int(generator.choice(np.flatnonzero(radius >= near))))
        else:
            picks.append(int(radius.argmax()))

"""Hard-neighbours sampler."""

from functools import partial

import numpy as np
from torch import Tensor

from unseen.core.contracts import IntArray
from unseen.core.geometry import Measure, dot, squared_distance
from unseen.samplers.base import Deck, check_enough_classes
from unseen.samplers.embedded.background import Background, Draw
from unseen.samplers.embedded.base import EmbeddedSampler
from unseen.samplers.embedded.nearest_classes import nearest_classes


class HardNeighborsSampler(EmbeddedSampler):
    """Hard neighbours: a seed image and the nearest wrong classes of the whole training set.

    Rule:
        the classes take turns to give a random image as seed. Each seed is joined by its nearest
        wrong classes: a class is as near as its nearest image, by the embeddings of all training
        images (memory bank), in exact search. The nearest image of the class comes along. No class
        is twice in a batch: where it already is, the next nearest takes its place. Seed and
        neighbours are completed by random images of their class.

        The search runs once an epoch, when it begins; or after every `search_every` steps, in a
        thread beside the training, from the embeddings of that moment. Its batches count from
        `search_every` steps later on, whenever it is ready: a run repeats bit for bit. The first
        2 * `search_every` batches of an epoch are searched when it begins. Of several processes
        each searches by itself.

    Paper:
        B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
        University of Athens, 2020, figure 18: a batch from an image and its hard neighbours

    Args:
        items: data set positions to draw from.
        labels: the class of each item.
        batch_size: items in a batch.
        per_class: items of a class in a batch; 4.
        neighbors: wrong classes that join a seed; 3 (ours).
        skip: nearest wrong classes passed over: where labels are wrong, the very nearest is often
            the same thing under another name.
        search_every: steps between searches; 0: once an epoch.
        refresh_every: epochs between full passes through the network; 0: the first only. Between
            them an image's embedding is that of the last batch it was in.
        normalize: compare unit embeddings.
        seed: of all draws.

    Use:
        losses on pairs and triplets whose random batches have no hard negatives left: many
        classes, small batches. On features of CUB-200-2011 it did not gain over m_per_class
        (docs/choosing.md).

    Example:
        >>> import numpy as np, torch
        >>> from unseen.samplers import HardNeighborsSampler
        >>> sampler = HardNeighborsSampler(np.arange(40), np.arange(40) // 4, 8, per_class=2)
        >>> sampler.fill(torch.randn(40, 3))
        >>> [len(batch) for batch in sampler]
        [8, 8, 8, 8, 8]
    """

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 4,
        neighbors: int = 3,
        skip: int = 0,
        search_every: int = 0,
        refresh_every: int = 0,
        normalize: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, per_class, refresh_every, normalize, seed)
        if neighbors < 1 or skip < 0 or search_every < 0:
            raise ValueError(
                "neighbors must be 1 or more, skip and search_every 0 or more, "
                f"got neighbors={neighbors}, skip={skip}, search_every={search_every}"
            )
        eligible = np.flatnonzero(self.index.sizes > 1)
        check_enough_classes(len(eligible), batch_size, per_class)
        if len(eligible) < self.num_groups + skip:
            raise ValueError(
                f"a batch of {self.num_groups} classes beside skip={skip} needs "
                f"{self.num_groups + skip} training classes, there are {len(eligible)}: lower "
                "skip or batch_size"
            )
        self.neighbors, self.skip = neighbors, skip
        self.num_seeds = -(-self.num_groups // (1 + neighbors))
        self._sizes = self.index.sizes[eligible]
        self._starts = np.cumsum(self._sizes) - self._sizes
        # places among the items, those of a class behind each other
        self._flat = np.concatenate([self.index.members[c] for c in eligible])
        self._similarity: Measure = dot if normalize else _nearness
        self._at_once = 2 * search_every or self.steps
        if search_every:
            self.background = Background(search_every, self._begin)

    def left_out(self) -> dict[str, int]:
        return self.index.left_out(2)

    def draw(self, epoch: int) -> list[IntArray]:
        return self._searched(self._rows(), epoch, 0, min(self.steps, self._at_once))

    def _rows(self) -> Tensor:  # [n, D]
        """A copy of the bank as it is, unit vectors where the cosine counts."""
        return self.bank.read(self._flat, self.normalize)

    def _begin(self, first: int) -> Draw | None:
        number = min(self._at_once // 2, self.steps - first)
        if number < 1:
            return None
        return partial(self._searched, self._rows(), self.epoch, first, number)

    def _searched(self, rows: Tensor, epoch: int, first: int, number: int) -> list[IntArray]:
        """So many batches from `first` on, by these embeddings."""
        generator = np.random.default_rng([self.seed, epoch, first])
        turns = Deck(np.arange(len(self._sizes)), generator)
        classes = np.stack([turns.draw(self.num_seeds) for _ in range(number)])  # [number, seeds]
        seeds = self._starts[classes] + generator.integers(self._sizes[classes])
        keep = self.skip + self.num_groups - 1  # enough, whichever are in the batch already
        near = nearest_classes(rows, self._sizes, seeds.ravel(), keep, self.normalize)
        near = near[:, self.skip :].reshape(number, self.num_seeds, -1)
        batches = []
        for own, drawn, lists in zip(classes, seeds, near, strict=True):
            pairs = self._joined(own, lists)
            group = partial(self._group, rows, generator=generator)
            groups = [group(int(drawn[of]), joins) for of, joins in pairs]
            batches.append(self.items[self._flat[np.concatenate(groups)]])
        return batches

    def _joined(self, own: IntArray, near: IntArray) -> list[tuple[int, int]]:
        """The classes of a batch, each with the seed (by its number) whose class or neighbour it
        is."""
        taken, room = set(own.tolist()), self.num_groups - len(own)
        pairs = []
        for of, (itself, others) in enumerate(zip(own.tolist(), near.tolist(), strict=True)):
            joins = [c for c in others if c not in taken][: min(self.neighbors, room)]
            taken.update(joins)
            room -= len(joins)
            pairs += [(of, c) for c in (itself, *joins)]
        return pairs

    def _group(
        self, rows: Tensor, seed: int, joins: int, *, generator: np.random.Generator
    ) -> IntArray:  # [per_class] rows
        """The seed or the image of a class nearest to it, and random mates of its class."""
        start, size = int(self._starts[joins]), int(self._sizes[joins])
        nearest = seed - start
        if not 0 <= nearest < size:
            near = self._similarity(rows[start : start + size], rows[seed : seed + 1])
            nearest = int(near.argmax())
        others = np.delete(np.arange(size), nearest)
        mates = generator.permutation(others)[: self.per_class - 1]
        missing = self.per_class - 1 - len(mates)
        if missing:  # a small class repeats some of its images
            mates = np.append(mates, generator.choice(others, missing))
        return start + np.append(nearest, mates)


def _nearness(x: Tensor, y: Tensor) -> Tensor:
    return -squared_distance(x, y)

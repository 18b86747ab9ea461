"""Hard neighbours: a seed picture and the nearest wrong classes of the whole training set.

Source   B. Psomas, Metric Learning: A Deep Dive, Master's thesis, National and Kapodistrian
         University of Athens, 2020, figure 18: a batch from a picture and its hard neighbours
Rule     the classes take turns to give a random picture as seed. Each seed is joined by its
         `neighbours` nearest wrong classes: a class is as near as its nearest picture, by the
         embeddings of all training pictures (memory bank), found by exact search. The nearest
         picture of the class comes along. No class is twice in a batch: where it already is, the
         next nearest takes its place. Seed and neighbours are completed by random pictures of their
         class, per_class of each.
Noise    `skip` passes over each seed's nearest wrong classes: where labels are wrong, the very
         nearest is often the same thing under another name.
Search   once an epoch, when it begins (`search_every` 0); or after every `search_every` steps, in a
         thread beside the training, from the embeddings of that moment. What is found counts from
         `search_every` steps later on, whenever it is ready: a run repeats bit for bit. The first
         2 * `search_every` batches of an epoch are searched when it begins. `refresh_every`: epochs
         between full passes through the network; between them a picture's embedding is that of
         the last batch it was in. Of several processes each searches by itself.
Values   3 neighbours a seed, ours. On features of CUB-200-2011 it did not gain over
         samples_per_class (docs/choosing.md).
Use      losses on pairs and triplets whose random batches have no hard negatives left: many
         classes, small batches.
"""

from functools import partial

import numpy as np
from torch import Tensor

from unseen.contracts import IntArray
from unseen.geometry import Measure, dot, squared_distance
from unseen.samplers.base import Deck, check_enough_classes
from unseen.samplers.embedded.background import Background, Draw
from unseen.samplers.embedded.base import EmbeddedSampler
from unseen.samplers.embedded.nearest_classes import nearest_classes


class HardNeighbours(EmbeddedSampler):
    """neighbours: wrong classes that join a seed. skip: nearer ones passed over."""

    def __init__(
        self,
        items: IntArray,
        labels: IntArray,
        batch_size: int,
        per_class: int = 4,
        neighbours: int = 3,
        skip: int = 0,
        search_every: int = 0,
        refresh_every: int = 0,
        normalise: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(items, labels, batch_size, per_class, refresh_every, normalise, seed)
        if neighbours < 1 or skip < 0 or search_every < 0:
            raise ValueError(
                "neighbours must be 1 or more, skip and search_every 0 or more, "
                f"got neighbours={neighbours}, skip={skip}, search_every={search_every}"
            )
        eligible = np.flatnonzero(self.index.sizes > 1)
        check_enough_classes(len(eligible), batch_size, per_class)
        if len(eligible) < self.num_groups + skip:
            raise ValueError(
                f"a batch of {self.num_groups} classes beside skip={skip} needs "
                f"{self.num_groups + skip} training classes, there are {len(eligible)}: lower "
                "skip or batch_size"
            )
        self.neighbours, self.skip = neighbours, skip
        self.num_seeds = -(-self.num_groups // (1 + neighbours))
        self._sizes = self.index.sizes[eligible]
        self._starts = np.cumsum(self._sizes) - self._sizes
        # places among the items, those of a class behind each other
        self._flat = np.concatenate([self.index.members[c] for c in eligible])
        self._similarity: Measure = dot if normalise else _nearness
        self._at_once = 2 * search_every or self.steps
        if search_every:
            self.background = Background(search_every, self._begin)

    def left_out(self) -> dict[str, int]:
        return self.index.left_out(2)

    def draw(self, epoch: int) -> list[IntArray]:
        return self._searched(self._rows(), epoch, 0, min(self.steps, self._at_once))

    def _rows(self) -> Tensor:  # [n, D]
        """A copy of the bank as it is, unit vectors where the cosine counts."""
        return self.bank.read(self._flat, self.normalise)

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
        near = nearest_classes(rows, self._sizes, seeds.ravel(), keep, self.normalise)
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
            joins = [c for c in others if c not in taken][: min(self.neighbours, room)]
            taken.update(joins)
            room -= len(joins)
            pairs += [(of, c) for c in (itself, *joins)]
        return pairs

    def _group(
        self, rows: Tensor, seed: int, joins: int, *, generator: np.random.Generator
    ) -> IntArray:  # [per_class] rows
        """The seed or the picture of a class nearest to it, and random mates of its class."""
        start, size = int(self._starts[joins]), int(self._sizes[joins])
        nearest = seed - start
        if not 0 <= nearest < size:
            near = self._similarity(rows[start : start + size], rows[seed : seed + 1])
            nearest = int(near.argmax())
        others = np.delete(np.arange(size), nearest)
        mates = generator.permutation(others)[: self.per_class - 1]
        missing = self.per_class - 1 - len(mates)
        if missing:  # a small class repeats some of its pictures
            mates = np.append(mates, generator.choice(others, missing))
        return start + np.append(nearest, mates)


def _nearness(x: Tensor, y: Tensor) -> Tensor:
    return -squared_distance(x, y)

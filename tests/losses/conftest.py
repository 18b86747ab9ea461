"""Random batches for the slow references of tuple losses, their tuples as plain Python lists."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core.relevance import KnownPairs, LabelSets, Levels
from unseen.core.tuples import Pairs, Triplets


@dataclass(frozen=True)
class Case:
    """A batch, what is given with it, and the pairs and triplets that count, listed by loops."""

    name: str
    x: Tensor  # [N, D] float64
    y: Tensor  # [N]
    tuples: Pairs | Triplets | None
    rx: Tensor | None
    ry: Tensor | None

    @property
    def columns(self) -> Tensor:
        return self.x if self.rx is None else self.rx

    @property
    def column_labels(self) -> list[int]:
        return (self.y if self.ry is None else self.ry).tolist()

    def __call__(self, loss: Callable[..., Tensor], x: Tensor | None = None) -> Tensor:
        return loss(self.x if x is None else x, self.y, self.tuples, self.rx, self.ry)

    @property
    def positives(self) -> list[tuple[int, int]]:
        if self.tuples is not None:
            return list(
                zip(self.tuples.anchor.tolist(), self.tuples.positive.tolist(), strict=True)
            )
        return [
            (i, j)
            for i, a in enumerate(self.y.tolist())
            for j, b in enumerate(self.column_labels)
            if a == b and (self.rx is not None or i != j)
        ]

    @property
    def negatives(self) -> list[tuple[int, int]]:
        if isinstance(self.tuples, Pairs):
            anchors = self.tuples.anchor_of_negative.tolist()
            return list(zip(anchors, self.tuples.negative.tolist(), strict=True))
        if isinstance(self.tuples, Triplets):
            return list(
                zip(self.tuples.anchor.tolist(), self.tuples.negative.tolist(), strict=True)
            )
        return [
            (i, j)
            for i, a in enumerate(self.y.tolist())
            for j, b in enumerate(self.column_labels)
            if a != b
        ]

    @property
    def triplets(self) -> list[tuple[int, int, int]]:
        if isinstance(self.tuples, Triplets):
            return list(zip(*(t.tolist() for t in self.tuples), strict=True))
        return [(a, p, n) for a, p in self.positives for b, n in self.negatives if a == b]


def draw_some(tuples: list, num: int, draw: torch.Generator) -> list:
    return [tuples[i] for i in torch.randint(len(tuples), (num,), generator=draw).tolist()]


def make_cases() -> list[Case]:
    """Shuffled classes of 1, 2, 3 and 6 items; references; given, repeated, switched tuples."""
    made = []
    for seed in range(2):
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(12, 8, generator=draw, dtype=torch.float64)
        y = torch.tensor([7, 1, 1, 4, 4, 4, 2, 2, 2, 2, 2, 2])[torch.randperm(12, generator=draw)]
        rx = torch.randn(9, 8, generator=draw, dtype=torch.float64)
        ry = torch.tensor([1, 1, 4, 4, 2, 2, 2, 9, 9])[torch.randperm(9, generator=draw)]
        for rx_, ry_ in ((None, None), (rx, ry)):
            everything = Case("", x, y, None, rx_, ry_)
            positives, negatives = everything.positives, everything.negatives
            triplets = everything.triplets
            # long lists are gathered from a matrix, short ones compared pair by pair
            num, first = (14, None) if seed == 0 else (2, positives[0][0])
            some = draw_some(triplets, num, draw)
            if rx_ is None:  # a tuple of the rho switch
                some[-1] = (positives[0][0], *positives[0])
            pull = [positives[0], *draw_some(positives, num // 2, draw)]
            push = draw_some([(a, n) for a, n in negatives if first in (None, a)], num + 1, draw)
            beside = "batch" if rx_ is None else "references"
            given = {
                "all": None,
                "triplets": Triplets(*torch.tensor(some).T),
                "pairs": Pairs(*torch.tensor(pull).T, *torch.tensor(push).T),
            }
            made += [
                Case(f"{beside}-{kind}-{seed}", x, y, tuples, rx_, ry_)
                for kind, tuples in given.items()
            ]
    return made


@pytest.fixture(params=make_cases(), ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param
    return made


@pytest.fixture
def cases() -> list[Case]:
    return make_cases()


@pytest.fixture
def levels() -> Levels:
    """Twelve items of a hierarchy: two, four, six groups."""
    fine = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    return Levels(np.stack([fine // 3, fine * 2 // 3, fine], axis=1), 3)


@pytest.fixture
def label_sets() -> LabelSets:
    """Twelve items with one to three of five labels."""
    rng = np.random.default_rng(1)
    sets = [rng.permutation(5)[: rng.integers(1, 4)].tolist() for _ in range(12)]
    return LabelSets(np.array([row + [-1] * (3 - len(row)) for row in sets]))


@pytest.fixture
def known() -> KnownPairs:
    """Twelve items, of some pairs of which somebody knows."""
    pairs = np.array([[i, j] for i in range(12) for j in range(i) if (i + j) % 3])
    return KnownPairs(pairs, (pairs.sum(axis=1) % 4) == 1, 12)

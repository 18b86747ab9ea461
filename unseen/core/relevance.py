"""Who is the same as whom: one object from data to answer.

    Labels       one class each: the same where the classes are equal
    LabelSets    several labels each: the same where they share one, graded by Jaccard's index, the
                 number of labels they share over the number that either has
    Levels       a hierarchy: the same where they share the evaluated level, graded by how many
                 levels they share, from the coarsest on, over how many there are
    Grades       any grade in [0, 1], by a function or by a list of pairs: the same from a grade on
    KnownPairs   only what is known counts: the same, not the same, or nobody knows

Items are positions in a data set. `Relevance.of(items)` stands where labels [N] stand otherwise:
losses, miners, evaluation and calibration take it. Plain labels stay tensors, and as fast.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Grade = Callable[[Tensor, Tensor], Tensor]  # positions whose shapes go together -> grades in [0, 1]
KINDS = ("labels", "levels", "label_sets", "pairs", "graded")
CLASSES = ("labels", "levels")  # the kinds that divide the items into classes
SHARED = 1e-6  # any grade above 0
_ROUNDING = 1e-6


class Relation(NamedTuple):
    """Of some items to others. A pair that nobody knows is neither the same nor different."""

    same: Tensor  # [N, M] bool
    different: Tensor  # [N, M] bool
    grade: Tensor  # [N, M] float32, 0 where nobody knows


class Relevance(ABC):
    """Abstract: what "the same" means among the items of a data set. least: the grade from which on
    two items are the same."""

    kind: ClassVar[str]
    is_graded: ClassVar[bool] = False  # there is more to say than the same and different
    has_classes: ClassVar[bool] = False  # "the same" divides the items into classes
    has_unknown: ClassVar[bool] = False  # of some pairs nobody knows

    least: float = 1.0
    classes: Tensor | None = None  # [n] what a split keeps together, by which scores are averaged

    @abstractmethod
    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        """0 to 1 for items at positions whose shapes go together; NaN: nobody knows."""

    def between(self, rows: Tensor, columns: Tensor) -> Relation:
        """Of items [N] to items [M]."""
        return self.relate(rows[:, None], columns[None, :])

    def relate(self, rows: Tensor, columns: Tensor) -> Relation:
        """Of items at positions whose shapes go together."""
        grade = self.grade(rows.cpu(), columns.cpu()).to(device=rows.device, dtype=torch.float32)
        same = grade >= self.least - _ROUNDING
        return Relation(same, grade < self.least - _ROUNDING, grade.nan_to_num())

    def sharded(self, classes: NDArray[np.int64]) -> Self:
        """The same, knowing the class of each item [n]."""
        made = copy(self)
        made.classes = torch.from_numpy(classes)
        return made

    def of(self, items: Tensor) -> "Related":
        """Some items, to be compared with each other or with others."""
        return Related(self, items)

    @abstractmethod
    def drawn(
        self, items: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What a sampler draws from: items, and the group of each in which positives are found; an
        item may stand in several. items, labels: those to be drawn from, and their classes."""

    @abstractmethod
    def crossing(self, subset: NDArray[np.int64]) -> NDArray[np.bool_]:  # [n]
        """Items that are the same as one of another part, given the part of each (-1: none)."""


@dataclass(frozen=True)
class Related:
    """Some items of a relevance, in place of labels [N]."""

    relevance: Relevance
    items: Tensor  # [N] int64 positions

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Tensor | slice) -> "Related":
        return Related(self.relevance, self.items[rows])

    @property
    def classes(self) -> Tensor:  # [N]
        """What they are divided by; where nobody has said, each item stands for itself."""
        return self.items if self.relevance.classes is None else self.relevance.classes[self.items]

    def to(self, columns: "Related | None" = None) -> Relation:
        """How they are related to others; None: to each other, an item not being its own pair."""
        if columns is not None:
            return self.relevance.between(self.items, columns.items)
        same, different, grade = self.relevance.between(self.items, self.items)
        return Relation(
            same.fill_diagonal_(False),
            different.fill_diagonal_(False),
            grade.fill_diagonal_(0),
        )


AnyLabels = Tensor | Related


def differ(rows: AnyLabels, columns: AnyLabels) -> Tensor:  # bool [N, M]
    """Which items are known to be different from which."""
    if isinstance(rows, Related):
        assert isinstance(columns, Related), "both are labels, or both are related"
        return rows.to(columns).different
    assert isinstance(columns, Tensor), "both are labels, or both are related"
    return rows[:, None] != columns


def keys_of(labels: AnyLabels) -> Tensor:  # [N]
    """One integer for each item: its label, or its position."""
    if isinstance(labels, Tensor):
        return labels
    if isinstance(labels, Related):
        return labels.items
    raise ValueError(
        "labels must be a tensor of integers, or items of a relevance, got "
        f"{type(labels).__name__}: torch.as_tensor(labels) makes one of a list"
    )


def classes_of(labels: AnyLabels, what: str) -> Tensor:  # [N]
    """The class of each item, for what goes by class alone (in words)."""
    if isinstance(labels, Related) and labels.relevance.classes is None:
        raise ValueError(
            f"{what} by class, and the {labels.relevance.kind} do not say which: give labels, or "
            "relevance.divided(classes)"
        )
    return labels.classes if isinstance(labels, Related) else keys_of(labels)


class _ByClass(Relevance):
    """Abstract: no class is on two sides of a split, and batches are drawn by class."""

    def drawn(
        self, items: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return items, labels

    def crossing(self, subset: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.zeros(len(subset), dtype=bool)


class Labels(_ByClass):
    """labels: the class of each item [n]."""

    kind = "labels"
    has_classes = True

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self.labels = torch.from_numpy(labels)

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        return (self.labels[rows] == self.labels[columns]).float()


class Levels(_ByClass):
    """codes: of each item [n, L], the coarsest level first. evaluated: how many levels two items
    must share to be the same."""

    kind = "levels"
    is_graded = has_classes = True

    def __init__(self, codes: NDArray[np.int64], evaluated: int) -> None:
        self.codes = torch.from_numpy(codes)
        self.least = evaluated / codes.shape[1]

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        shared: Tensor | None = None
        total: Tensor | None = None
        for level in self.codes.T:  # a level is shared where all above it are
            equal = level[rows] == level[columns]
            shared = equal if shared is None else shared & equal
            total = shared.float() if total is None else total + shared
        assert total is not None, "there is a level"
        return total / self.codes.shape[1]


class LabelSets(Relevance):
    """sets: the labels of each item [n, S], -1 where it has no more. least: Jaccard's index from
    which on two items are the same; None: where they share a label."""

    kind = "label_sets"
    is_graded = True

    def __init__(self, sets: NDArray[np.int64], least: float | None = None) -> None:
        self.sets = torch.from_numpy(sets)
        self.sizes = (self.sets >= 0).sum(dim=1)
        self.least = 2 * SHARED if least is None else least

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        mine, theirs = self.sets[rows], self.sets[columns]  # [..., S]
        shared: Tensor | int = 0
        for place in range(mine.shape[-1]):
            one = mine[..., place, None]
            shared = shared + ((one == theirs) & (one >= 0)).sum(dim=-1)
        either = self.sizes[rows] + self.sizes[columns] - shared
        return shared / either.clamp(min=1)

    def drawn(
        self, items: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        row, place = (self.sets[torch.from_numpy(items)] >= 0).nonzero(as_tuple=True)
        return items[row.numpy()], self.sets.numpy()[items[row.numpy()], place.numpy()]

    def crossing(self, subset: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A label belongs to the part that holds most of its items."""
        sets = self.sets.numpy()
        row, place = np.nonzero((sets >= 0) & (subset >= 0)[:, None])
        label, number = sets[row, place], int(subset.max(initial=0)) + 1
        counts = np.zeros((int(sets.max(initial=0)) + 1, number), dtype=np.int64)
        np.add.at(counts, (label, subset[row]), 1)
        crosses = np.zeros(len(subset), dtype=bool)
        crosses[row[counts.argmax(axis=1)[label] != subset[row]]] = True
        return crosses


class _Listed(Relevance):
    """Abstract: pairs of items [P, 2] and a value of each, in either order."""

    absent: ClassVar[float]  # the grade of a pair that is not listed

    def __init__(self, pairs: NDArray[np.int64], grades: NDArray[np.float64], number: int) -> None:
        self.pairs, self.grades, self.number = pairs, grades, number
        low, high = np.sort(pairs, axis=1).T
        keys, place = np.unique(low * number + high, return_index=True)
        self._keys = torch.from_numpy(keys)
        self._values = torch.from_numpy(grades[place].astype(np.float32))

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        keys = torch.minimum(rows, columns) * self.number + torch.maximum(rows, columns)
        if not len(self._keys):
            return torch.full(keys.shape, self.absent)
        place = torch.searchsorted(self._keys, keys).clamp_(max=len(self._keys) - 1)
        return torch.where(self._keys[place] == keys, self._values[place], self.absent)

    def drawn(
        self, items: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A listed pair is a group."""
        inside = self.pairs[np.isin(self.pairs, items).all(axis=1)]
        return inside.flatten(), np.repeat(np.arange(len(inside)), 2)

    def crossing(self, subset: NDArray[np.int64]) -> NDArray[np.bool_]:
        one, two = self.pairs[self.grades >= self.least - _ROUNDING].T
        apart = (subset[one] != subset[two]) & (subset[one] >= 0) & (subset[two] >= 0)
        crosses = np.zeros(len(subset), dtype=bool)
        crosses[one[apart]] = crosses[two[apart]] = True
        return crosses


class KnownPairs(_Listed):
    """pairs [P, 2] of n items, and whether the two are known to be the same."""

    kind = "pairs"
    has_unknown = True
    absent = float("nan")

    def __init__(self, pairs: NDArray[np.int64], same: NDArray[np.bool_], number: int) -> None:
        super().__init__(pairs, same.astype(np.float64), number)


class GradedPairs(_Listed):
    """pairs [P, 2] of n items and their grades; other pairs have none, an item has 1 with itself.
    least: the grade from which on two items are the same."""

    kind = "graded"
    is_graded = True
    absent = 0.0

    def __init__(
        self,
        pairs: NDArray[np.int64],
        grades: NDArray[np.float64],
        number: int,
        least: float = 0.5,
    ) -> None:
        _refuse_grades(float(grades.min(initial=0)), float(grades.max(initial=0)))
        super().__init__(pairs, grades, number)
        self.least = least

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        # a batch may hold an item twice, a memory one of the batch
        return super().grade(rows, columns).masked_fill_(rows == columns, 1.0)


class Grades(_ByClass):
    """call: gives the grades of items at positions whose shapes go together. least: the grade from
    which on two items are the same."""

    kind = "graded"
    is_graded = True

    def __init__(self, call: Grade, least: float = 0.5) -> None:
        self.call, self.least = call, least

    def grade(self, rows: Tensor, columns: Tensor) -> Tensor:
        result = torch.as_tensor(self.call(rows, columns)).float()
        if result.numel():
            _refuse_grades(*(float(end) for end in result.aminmax()))
        return result.expand(torch.broadcast_shapes(rows.shape, columns.shape))


def _refuse_grades(low: float, high: float) -> None:
    if low < 0 or high > 1 + _ROUNDING:
        raise ValueError(f"grades must lie in [0, 1], got {low:g} to {high:g}")


def same_classes(one: NDArray[np.int64], two: NDArray[np.int64]) -> bool:
    """Whether two columns of labels [n] divide the items alike."""
    both = len(np.unique(np.stack([one, two]), axis=1).T)
    return both == len(np.unique(one)) == len(np.unique(two))


def joined_classes(labels: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.int64]:  # [n]
    """Classes 0..C-1 [n] in which two that hold a pair of the same [P, 2] are one: what must stay
    on one side of a split."""
    from scipy.sparse import coo_matrix  # noqa: PLC0415 - it takes a while to import
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    number = int(labels.max()) + 1
    one, two = labels[pairs].T
    graph = coo_matrix((np.ones(len(one)), (one, two)), shape=(number, number))
    return np.asarray(connected_components(graph, directed=False)[1][labels], dtype=np.int64)

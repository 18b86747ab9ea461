"""The four kinds of metric: retrieval, clustering, verification and rejection."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unseen.core.contracts import GradedRanks, Neighbors


class Retrieval(ABC):
    """One value per query from its neighbours; NaN for lone queries.

    `needs_ranks`: from the rank of every relevant item. Every metric of this and the other kinds
    lies in [0, 1] (AMI may fall below 0); larger is better unless its docstring says otherwise.
    """

    needs_ranks: ClassVar[bool] = False
    needs_grades: ClassVar[bool] = False  # from the rank and grade of everything related to it

    @abstractmethod
    def depth(self, max_relevant: int) -> int:
        """How many neighbours it looks at when no query has more than that many relevant."""

    @abstractmethod
    def on_queries(self, neighbors: Neighbors) -> Tensor:
        """One value per query [Q] float64; those of lone queries are ignored."""

    def __call__(self, neighbors: Neighbors) -> Tensor:
        values = self.on_queries(neighbors)
        return values.masked_fill(neighbors.num_relevant == 0, math.nan)


class Clustering(ABC):
    """A number from the cluster and class of each item, and how it splits into values per item."""

    @abstractmethod
    def on_items(self, assignments: Tensor, labels: Tensor) -> Tensor:
        """Values [N] float64 whose mean is the metric: the metric plus the item's influence on it.

        So an interval or a paired test over items works as it does for retrieval.
        """

    def __call__(self, assignments: Tensor, labels: Tensor) -> float:
        return float(self.on_items(assignments, labels).mean())


@dataclass(frozen=True)
class PairScores:
    """How often each similarity occurs among right and among wrong pairs, highest first."""

    similarities: Tensor  # [B] falling
    right: Tensor  # [B] int64 pairs of one class
    wrong: Tensor  # [B] int64 pairs of two classes

    def false_match_rate(self) -> Tensor:  # [B + 1]
        """Share of wrong pairs accepted at each threshold, from accepting none to accepting all."""
        return _accepted(self.wrong)

    def false_non_match_rate(self) -> Tensor:  # [B + 1]
        """Share of right pairs refused at each threshold, likewise."""
        return 1 - _accepted(self.right)


class Verification(ABC):
    """A number from the similarities of all pairs: same or different, by one threshold."""

    worst: ClassVar[float] = 0.0

    @abstractmethod
    def __call__(self, scores: PairScores) -> float: ...


@dataclass(frozen=True)
class OpenAnswers:
    """The nearest answer to each query. threshold: answers from there on are believed; NaN: none
    is known."""

    similarities: Tensor  # [Q] float64
    right: Tensor  # [Q] bool, the answer has the query's class
    known: Tensor  # [Q] bool, the gallery has the query's class
    labels: Tensor  # [Q] of the queries
    threshold: float = math.nan

    def as_pairs(self) -> PairScores:
        """Known queries as right pairs, unknown ones as wrong: what one threshold tells apart."""
        values, place = torch.unique(-self.similarities, return_inverse=True)
        counts = [
            torch.bincount(place[of], minlength=len(values)) for of in (self.known, ~self.known)
        ]
        return PairScores(-values, counts[0], counts[1])


class Rejection(ABC):
    """A number from the nearest answers to queries, also of classes that the gallery does not have
    (`evaluation/open_set.py`)."""

    @abstractmethod
    def __call__(self, answers: OpenAnswers) -> float: ...


def by_class(values: Tensor, labels: Tensor) -> float:
    """The mean over classes of the mean over a class's queries; NaN without any."""
    if not len(values):
        return math.nan
    _, group = torch.unique(labels, return_inverse=True)
    sums = torch.bincount(group, weights=values.double())
    return float((sums / torch.bincount(group)).mean())


def precision_sums(neighbors: Neighbors, depth: int | Tensor) -> Tensor:  # [Q] float64
    """Sum over the right neighbours among the first `depth` of the precision at their rank."""
    matches = neighbors.matches
    rank = torch.arange(1, matches.shape[1] + 1, device=matches.device)
    inside = matches & (rank <= _limit(depth))
    return (inside.cumsum(1).double() / rank * inside).sum(1)


def hits(neighbors: Neighbors, depth: int | Tensor) -> Tensor:  # [Q] int64
    """Right neighbours among the first `depth`."""
    rank = torch.arange(1, neighbors.matches.shape[1] + 1, device=neighbors.matches.device)
    return (neighbors.matches & (rank <= _limit(depth))).sum(1)


def ranks_of(neighbors: Neighbors) -> Tensor:  # [Q, R]
    """The ranks of all relevant items, or an explanation why there are none."""
    if neighbors.ranks is None:
        raise ValueError(
            "this metric needs the rank of every relevant item: retrieve(..., ranks=True)"
        )
    return neighbors.ranks


def graded_of(neighbors: Neighbors) -> GradedRanks:
    """The ranks and grades of all related items, or an explanation why there are none."""
    if neighbors.graded is None:
        raise ValueError(
            "this metric needs the grade of every related item: retrieve(..., grades=True)"
        )
    return neighbors.graded


def contingency(
    assignments: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # four [N] float64
    """For each item the size of its cell (cluster and class), cluster, class and of the whole."""
    if len(assignments) != len(labels) or len(labels) == 0:
        raise ValueError(
            "assignments and labels must be as many and at least one, "
            f"got {len(assignments)} and {len(labels)}"
        )
    _, cluster = torch.unique(assignments, return_inverse=True)
    _, label = torch.unique(labels, return_inverse=True)
    cell = cluster * (label.max() + 1) + label
    _, cell = torch.unique(cell, return_inverse=True)
    sizes = [torch.bincount(group).double()[group] for group in (cell, cluster, label)]
    return sizes[0], sizes[1], sizes[2], torch.full_like(sizes[0], len(labels))


def _limit(depth: int | Tensor) -> int | Tensor:
    return depth if isinstance(depth, int) else depth[:, None]


def _accepted(count: Tensor) -> Tensor:
    total = count.cumsum(0).double()
    return torch.cat([total.new_zeros(1), total / total[-1].clamp(min=1)])

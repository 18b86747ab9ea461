"""Every kind of relevance says of a batch what loops over its pairs say."""

import math

import numpy as np
import pytest
import torch

from unseen.core.relevance import (
    GradedPairs,
    Grades,
    KnownPairs,
    Labels,
    LabelSets,
    Levels,
    Relevance,
    joined_classes,
    same_classes,
)

RNG = np.random.default_rng(0)
N = 12
LABELS = RNG.integers(3, size=N)
CODES = np.stack([LABELS % 2, LABELS, RNG.integers(2, size=N)], axis=1)
SETS = [sorted(set(RNG.integers(6, size=RNG.integers(1, 4)).tolist())) for _ in range(N)]
PADDED = np.array([row + [-1] * (3 - len(row)) for row in SETS])
PAIRS = np.array([[i, j] for i in range(N) for j in range(i + 1, N) if (i * j) % 3])
PAIR_GRADES = RNG.random(len(PAIRS))


def jaccard(i: int, j: int) -> float:
    return len(set(SETS[i]) & set(SETS[j])) / len(set(SETS[i]) | set(SETS[j]))


def shared_levels(i: int, j: int) -> float:
    shared = 0
    while shared < 3 and CODES[i, shared] == CODES[j, shared]:
        shared += 1
    return shared / 3


def listed(i: int, j: int) -> float:
    """NaN: in no list."""
    for (one, two), grade in zip(PAIRS.tolist(), PAIR_GRADES, strict=True):
        if {one, two} == {i, j}:
            return float(grade)
    return math.nan


def known(i: int, j: int) -> float:
    grade = listed(i, j)
    return grade if math.isnan(grade) else float(grade > 0.5)


KINDS = {  # a relevance, its grades by a loop, and the grade from which on two are the same
    "labels": (Labels(LABELS), lambda i, j: float(LABELS[i] == LABELS[j]), 1.0),
    "levels": (Levels(CODES, 2), shared_levels, 2 / 3),
    "label sets": (LabelSets(PADDED), jaccard, 1e-3),
    "alike label sets": (LabelSets(PADDED, 0.5), jaccard, 0.5),
    "graded": (
        GradedPairs(PAIRS, PAIR_GRADES, N, 0.4),
        lambda i, j: 0.0 if math.isnan(listed(i, j)) else listed(i, j),
        0.4,
    ),
    "a function": (
        Grades(lambda rows, columns: 1 / (1 + (rows - columns).abs())),
        lambda i, j: 1 / (1 + abs(i - j)),
        0.5,
    ),
    "pairs": (KnownPairs(PAIRS, PAIR_GRADES > 0.5, N), known, 1.0),
}


@pytest.mark.parametrize("name", KINDS)
def test_relations_are_those_of_a_loop(name: str) -> None:
    relevance, slow, least = KINDS[name]
    rows, columns = torch.tensor([3, 0, 7, 7]), torch.tensor([1, 2, 3, 5, 11])
    same, different, grade = relevance.of(rows).to(relevance.of(columns))
    for r, i in enumerate(rows.tolist()):
        for c, j in enumerate(columns.tolist()):
            if i == j:
                continue
            wanted = slow(i, j)
            assert bool(same[r, c]) == (wanted >= least - 1e-6)
            assert bool(different[r, c]) == (wanted < least - 1e-6)
            assert float(grade[r, c]) == pytest.approx(0 if math.isnan(wanted) else wanted)
    own = relevance.of(rows).to()
    assert not own.same.diagonal().any()
    assert not own.different.diagonal().any()
    assert not own.grade.diagonal().any()
    paired = relevance.relate(rows, columns[:4])
    assert torch.equal(paired.same, same[torch.arange(4), torch.arange(4)])


@pytest.mark.parametrize("name", KINDS)
def test_no_item_differs_from_itself(name: str) -> None:
    """A batch may hold an item twice, and a memory one of the batch."""
    relevance, _, _ = KINDS[name]
    same, different, grade = relevance.of(torch.arange(N)).to(relevance.of(torch.arange(N)))
    assert not different.diagonal().any()
    if not relevance.has_unknown:
        assert same.diagonal().all()
        assert torch.equal(grade.diagonal(), torch.ones(N))


@pytest.mark.parametrize("name", KINDS)
def test_what_is_drawn_together_is_related(name: str) -> None:
    relevance, slow, least = KINDS[name]
    items, groups = relevance.drawn(np.arange(1, N), LABELS[1:])
    assert set(items) <= set(range(1, N))
    for group in np.unique(groups):
        members = items[groups == group].tolist()
        if relevance.kind in ("labels", "label_sets") and least < 0.01:
            assert all(slow(i, j) >= least for i in members for j in members if i != j)
        if relevance.kind == "pairs" or name == "graded":
            assert len(members) == 2
            assert not math.isnan(listed(*members))


@pytest.mark.parametrize("name", KINDS)
def test_without_crossing_items_no_two_parts_share_anything(name: str) -> None:
    relevance, slow, _ = KINDS[name]
    part = np.where(LABELS == 0, 0, np.where(LABELS == 1, 1, -1))
    kept = np.flatnonzero((part >= 0) & ~relevance.crossing(part))
    if isinstance(relevance, Grades):
        return  # a function says nothing of who stays together
    for i in kept:
        for j in kept:
            if part[i] != part[j] and name != "levels":
                assert not slow(i, j) >= relevance.least - 1e-6


def test_classes_that_hold_a_pair_of_the_same_are_one() -> None:
    labels = np.array([0, 0, 1, 2, 3, 4])
    joined = joined_classes(labels, np.array([[1, 2], [2, 4]]))
    assert same_classes(joined, np.array([0, 0, 0, 1, 0, 2]))
    assert not same_classes(joined, labels)
    assert same_classes(joined_classes(labels, np.zeros((0, 2), dtype=np.int64)), labels)


def test_grades_beyond_0_and_1_are_refused() -> None:
    one = np.array([[0, 1]])
    with pytest.raises(ValueError, match=r"grades must lie in \[0, 1\], got 0 to 2"):
        GradedPairs(one, np.array([2.0]), 2)
    everyone = torch.arange(3)
    wrong: Relevance = Grades(lambda rows, columns: (rows - columns).float())
    with pytest.raises(ValueError, match=r"grades must lie in \[0, 1\], got -2 to 2"):
        wrong.of(everyone).to()

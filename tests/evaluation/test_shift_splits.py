"""Splits of growing shift against slow twins: scipy's matrix root, and exchanges class by class."""

from pathlib import Path

import numpy as np
import pytest
from scipy import linalg

from unseen.evaluation.shift_splits import (
    STEPS,
    ShiftSplits,
    class_means,
    exchanged,
    frechet_distance,
    read_shift_splits,
    removed,
    shift_splits,
)

CLASSES, EACH = 24, 6
OWN = (np.arange(12), np.arange(12, 24))


def features(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), EACH))
    centers = 3 * rng.normal(size=(CLASSES, 5)) * [2, 1, 0.5, 0.2, 0.1]
    return (centers[labels] + rng.normal(size=(len(labels), 5))).astype(np.float32), labels


def slow_frechet(one: np.ndarray, other: np.ndarray) -> float:
    cov = [np.cov(np.asarray(rows, dtype=np.float64), rowvar=False) for rows in (one, other)]
    apart = one.astype(np.float64).mean(0) - other.astype(np.float64).mean(0)
    root = linalg.sqrtm(cov[0] @ cov[1]).real
    return float(apart @ apart + np.trace(cov[0]) + np.trace(cov[1]) - 2 * np.trace(root))


@pytest.mark.parametrize("seed", range(3))
def test_frechet_distance_is_that_of_scipys_root(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(40, 6)), 2 * rng.normal(size=(30, 6)) @ rng.normal(size=(6, 6))
    assert frechet_distance(one, other) == pytest.approx(slow_frechet(one, other), rel=1e-8)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)
    moved = frechet_distance(one, one + np.array([3, 0, 0, 0, 0, 4]))
    assert moved == pytest.approx(25, rel=1e-9)  # nothing but the mean differs


def slow_side(means: np.ndarray, train: list[int], test: list[int], label: int) -> float:
    middle = [sum(means[c] for c in half) / len(half) for half in (test, train)]
    to_test, to_train = (float(np.sqrt(((means[label] - m) ** 2).sum())) for m in middle)
    return to_test - to_train


def slow_exchange(
    means: np.ndarray, train: list[int], test: list[int], number: int
) -> tuple[list[int], list[int]]:
    train, test, moved, harder = list(train), list(test), set[int](), number > 0
    for _ in range(abs(number)):
        sides = {c: slow_side(means, train, test, c) for c in [*train, *test]}
        one = [c for c in train if c not in moved]
        two = [c for c in test if c not in moved]
        pick = (min, max) if harder else (max, min)
        leaving, coming = pick[0](one, key=sides.__getitem__), pick[1](two, key=sides.__getitem__)
        if (sides[leaving] >= sides[coming]) if harder else (sides[leaving] <= sides[coming]):
            break
        train[train.index(leaving)], test[test.index(coming)] = coming, leaving
        moved |= {leaving, coming}
    return sorted(train), sorted(test)


@pytest.mark.parametrize("number", [-4, -1, 0, 1, 3, 9])
def test_exchanges_are_those_of_the_loop(number: int) -> None:
    for seed in range(4):
        rows, labels = features(seed)
        means = class_means(rows, labels)
        assert np.allclose(means, [rows[labels == c].mean(axis=0) for c in range(CLASSES)])
        (train, test), _ = exchanged(means, *OWN, number)
        assert (train.tolist(), test.tolist()) == slow_exchange(
            means, OWN[0].tolist(), OWN[1].tolist(), number
        )


def test_classes_between_are_removed_one_by_one() -> None:
    rows, labels = features(0)
    means, (one, two) = class_means(rows, labels), (OWN[0].tolist(), OWN[1].tolist())
    for _ in range(3):
        near = min(one, key=lambda c: slow_side(means, one, two, c))
        near_test = max(two, key=lambda c: slow_side(means, one, two, c))
        one, two = [c for c in one if c != near], [c for c in two if c != near_test]
    (train, test), number = removed(means, *OWN, 3)
    assert (train.tolist(), test.tolist(), number) == (one, two, 3)
    (train, test), number = removed(means, *OWN, 100)  # some are always left
    assert (len(train), len(test), number) == (4, 4, 8)


@pytest.mark.parametrize("seed", range(4))
def test_steps_of_shift_rise_and_their_halves_share_no_class(seed: int) -> None:
    rows, labels = features(seed)
    stages = shift_splits(rows, labels, OWN)
    assert [each.step for each in stages.steps] == list(range(1, STEPS + 1))
    assert STEPS == 9  # as `config_tables.ShiftSettings` says
    distances = [each.distance for each in stages.steps]
    assert distances == sorted(distances)
    assert distances[-1] > 2 * distances[0]
    for each in stages.steps:
        assert not set(each.train) & set(each.test)
    again = shift_splits(rows, labels, OWN)
    assert [s.train.tolist() for s in again.steps] == [s.train.tolist() for s in stages.steps]
    whole = next(each for each in stages.steps if each.made_by == "as it is")
    assert (whole.train.tolist(), whole.test.tolist()) == tuple(half.tolist() for half in OWN)


def test_distances_are_of_equally_many_items() -> None:
    rows, labels = features(1)
    stages = shift_splits(rows, labels, OWN)
    count = min(len(half) for each in stages.steps for half in (each.train, each.test)) * EACH
    for each in stages.steps:
        some = []
        for half in (each.train, each.test):
            items = [i for i in range(len(labels)) if labels[i] in half]
            some.append(rows[[items[int(p)] for p in np.linspace(0, len(items) - 1, count)]])
        assert each.distance == pytest.approx(slow_frechet(*some), abs=1e-5)


def test_a_table_keeps_it_and_other_data_are_refused(tmp_path: Path) -> None:
    rows, labels = features(0)
    names = [f"class {c}" for c in range(CLASSES)]
    stages = shift_splits(rows, labels, OWN, of="features of x")
    stages.write(tmp_path / "stages.csv", names)
    read = read_shift_splits(tmp_path / "stages.csv", names)
    assert read.of == "features of x"
    for one, two in zip(stages.steps, read.steps, strict=True):
        assert (one.step, one.made_by, one.distance) == (two.step, two.made_by, two.distance)
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.test, two.test)
    with pytest.raises(ValueError, match="a table of other data: they have no class 'class"):
        read_shift_splits(tmp_path / "stages.csv", [f"bird {c}" for c in range(CLASSES)])
    (tmp_path / "other.csv").write_text("step,label\n1,a\n")
    with pytest.raises(ValueError, match="is no table of `unseen data shift`: it has no distance"):
        read_shift_splits(tmp_path / "other.csv", names)


def test_too_few_classes_and_steps_that_are_not_there() -> None:
    rows, labels = features(0)
    with pytest.raises(ValueError, match="needs 4 training and 2 test classes"):
        shift_splits(rows, labels, (np.arange(3), np.arange(12, 24)))
    with pytest.raises(ValueError, match=r"shift\.step must lie between 1 and 0, got 3"):
        ShiftSplits((), "nothing").at(3)

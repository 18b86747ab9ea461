"""Splits of growing shift between the classes that are trained on and those that are tested.

Paper    T. Milbich, K. Roth et al., Characterizing Generalization under Out-Of-Distribution Shifts
         in Deep Metric Learning, NeurIPS 2021, https://arxiv.org/abs/2107.09562
Formula  with class means m[c] of some descriptors, and t, u the means over training and over test
         classes of theirs, a class stands on the side

             s(c) = |m[c] - u| - |m[c] - t|        (positive: with the training classes)

         harder   the training classes of smallest s and the test classes of largest s change places
         easier   those of largest and of smallest s do
         removed  after the last exchange, the classes between: of smallest s from training, of
                  largest s from testing
         t and u are computed again after every fiftieth of the classes; nobody moves twice, and
         exchanging ends where it would undo itself.
Shift    the squared Frechet distance of the training and the test items' descriptors (`frechet`);
         of equally many items at every step, evenly taken, because few items make it larger. Steps
         are numbered by it. Beside it that of the class means alone, which the released code takes.
Values   exchanged -20, -10, 0, 6, 10 and 30 % of the classes of a half, then 22, 48, 66 % removed:
         the nine splits of CUB in the released code, whose distances are 19.2 to 173.9. It lets a
         class move again after a while, removes from the split of 48 exchanges on, and exchanges
         instead of removing where that lowers the distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.core.contracts import IntArray, Progress
from unseen.data.images import table_file
from unseen.samplers.frechet_matching import frechet

EXCHANGED = (-0.20, -0.10, 0.0, 0.06, 0.10, 0.30)
REMOVED = (0.22, 0.48, 0.66)
STEPS = len(EXCHANGED) + len(REMOVED)
ROUNDS = 50  # exchanges after which the means are computed again, in parts of a half
LEAST_TRAIN, LEAST_TEST = 4, 2  # classes: two to train on, two to select on; two to tell apart
MOST_ITEMS = 10_000  # of each side that a distance is measured on

Halves = tuple[IntArray, IntArray]  # training classes, test classes
Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ShiftStep:
    """One split. made_by: from the data's own split, in words."""

    step: int
    made_by: str
    train: IntArray  # classes
    test: IntArray
    distance: float = float("nan")
    distance_of_means: float = float("nan")


@dataclass(frozen=True)
class ShiftSplits:
    """Splits from the smallest shift to the largest. of: the descriptors it was measured with."""

    steps: tuple[ShiftStep, ...]
    of: str

    def at(self, step: int) -> ShiftStep:
        if not 1 <= step <= len(self.steps):
            raise ValueError(f"shift.step must lie between 1 and {len(self.steps)}, got {step}")
        return self.steps[step - 1]

    def write(self, path: Path, label_names: Sequence[str]) -> None:
        """A row for each class of each step; a class that was removed has none."""
        columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for each in self.steps:
            for side, classes in (("train", each.train), ("test", each.test)):
                for label in classes.tolist():
                    row = (each.step, each.distance, each.distance_of_means, each.made_by)
                    row_of = (*row, self.of, side, str(label_names[label]))
                    for name, value in zip(COLUMNS, row_of, strict=True):
                        columns[name].append(value)
        table_file.write(path, columns)


COLUMNS = ("step", "distance", "distance_of_means", "made_by", "of", "part", "label")


def read_shift_splits(path: Path, label_names: Sequence[str]) -> ShiftSplits:
    """A written stages; ValueError: it is none, or of classes that the data do not have."""
    columns = table_file.read(path)
    if missing := [name for name in COLUMNS if name not in columns]:
        raise ValueError(f"{path} is no table of `unseen data shift`: it has no {missing[0]}")
    place = {str(name): label for label, name in enumerate(label_names)}
    if strange := [name for name in columns["label"] if name not in place]:
        raise ValueError(f"{path} is a table of other data: they have no class {strange[0]!r}")
    labels = np.array([place[name] for name in columns["label"]], dtype=np.int64)
    numbers, sides = np.array(columns["step"], dtype=np.int64), np.array(columns["part"])
    steps = []
    for number in np.unique(numbers).tolist():
        rows = numbers == number
        first = int(np.flatnonzero(rows)[0])
        train, test = (np.sort(labels[rows & (sides == name)]) for name in ("train", "test"))
        steps.append(
            ShiftStep(
                number,
                columns["made_by"][first],
                train,
                test,
                distance=float(columns["distance"][first]),
                distance_of_means=float(columns["distance_of_means"][first]),
            )
        )
    return ShiftSplits(tuple(steps), columns["of"][0])


def shift_splits(
    features: Rows,
    labels: IntArray,
    own: Halves,
    of: str = "features",
    progress: Progress | None = None,
) -> ShiftSplits:
    """The splits made of descriptors [n, P] and the data's own halves, by growing distance."""
    train, test = (np.sort(np.asarray(half, dtype=np.int64)) for half in own)
    if len(train) < LEAST_TRAIN or len(test) < LEAST_TEST:
        raise ValueError(
            f"splits of growing shift needs {LEAST_TRAIN} training and {LEAST_TEST} test "
            "classes of two "
            f"or more items, got {len(train)} and {len(test)}"
        )
    means = class_means(features, labels)
    made = _splits(means, train, test)
    parts = [[np.isin(labels, half).nonzero()[0] for half in (s.train, s.test)] for s in made]
    number = min([MOST_ITEMS, *(len(items) for pair in parts for items in pair)])
    steps = []
    for done, (step, pair) in enumerate(zip(made, parts, strict=True), start=1):
        some = [
            features[items[np.linspace(0, len(items) - 1, number).astype(int)]] for items in pair
        ]
        distance = frechet_distance(*some)
        of_means = frechet_distance(means[step.train], means[step.test])
        steps.append(
            replace(step, distance=round(distance, 6), distance_of_means=round(of_means, 6))
        )
        if progress is not None:
            progress(done, len(made))
    steps.sort(key=lambda step: step.distance)
    return ShiftSplits(tuple(replace(s, step=i) for i, s in enumerate(steps, start=1)), of)


def frechet_distance(one: Rows, other: Rows) -> float:
    """Squared, between the Gaussians of two sets of rows, in float64."""
    pool, sets = (torch.from_numpy(np.asarray(rows, dtype=np.float64)) for rows in (one, other))
    return max(0.0, float(frechet(sets[None], pool)[0]))


def class_means(features: Rows, labels: IntArray) -> NDArray[np.float64]:  # [C, P]
    """NaN for a label that no item has."""
    sizes = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    present = np.flatnonzero(sizes)
    means = np.full((len(sizes), features.shape[1]), np.nan)
    sums = np.add.reduceat(np.asarray(features[order], dtype=np.float64), starts[present], axis=0)
    means[present] = sums / sizes[present, None]
    return means


def exchanged(means: Rows, train: IntArray, test: IntArray, number: int) -> tuple[Halves, int]:
    """The halves after so many classes of each changed places, harder or (negative) easier; and how
    many did."""
    sign, at_once = (1 if number > 0 else -1), max(1, min(len(train), len(test)) // ROUNDS)
    still, still_test, done = train, test, 0  # those that have not moved
    while done < abs(number) and len(still) and len(still_test):
        side = sign * _sides(means, train, test)
        count = min(at_once, abs(number) - done, len(still), len(still_test))
        leaving = _first(still, side[still], count)
        coming = _first(still_test, -side[still_test], count)
        gain = side[leaving] < side[coming]
        leaving, coming = leaving[gain], coming[gain]
        if not len(leaving):
            break
        train = np.append(np.setdiff1d(train, leaving), coming)
        test = np.append(np.setdiff1d(test, coming), leaving)
        still, still_test = np.setdiff1d(still, leaving), np.setdiff1d(still_test, coming)
        done += len(leaving)
    return (np.sort(train), np.sort(test)), done


def removed(means: Rows, train: IntArray, test: IntArray, number: int) -> tuple[Halves, int]:
    """The halves without the classes between them, so many of each; and how many."""
    number = max(0, min(number, len(train) - LEAST_TRAIN, len(test) - LEAST_TEST))
    at_once, left = max(1, min(len(train), len(test)) // ROUNDS), number
    while left:
        side, count = _sides(means, train, test), min(at_once, left)
        train = np.setdiff1d(train, _first(train, side[train], count))
        test = np.setdiff1d(test, _first(test, -side[test], count))
        left -= count
    return (train, test), number


def _splits(means: Rows, train: IntArray, test: IntArray) -> list[ShiftStep]:
    half, result = min(len(train), len(test)), []
    halves: Halves = (train, test)
    done = 0
    for fraction in EXCHANGED:
        halves, done = exchanged(means, train, test, round(fraction * half))
        word = "harder" if fraction > 0 else "easier"
        made_by = f"{done} exchanged, {word}" if done else "as it is"
        result.append(ShiftStep(0, made_by, *halves))
    for fraction in REMOVED:
        rest, dropped = removed(means, *halves, round(fraction * half))
        result.append(ShiftStep(0, f"{done} exchanged, harder; {dropped} of each removed", *rest))
    return result


def _sides(means: Rows, train: IntArray, test: IntArray) -> NDArray[np.float64]:  # [C]
    to_test = np.linalg.norm(means - means[test].mean(axis=0), axis=1)
    to_train = np.linalg.norm(means - means[train].mean(axis=0), axis=1)
    sides: NDArray[np.float64] = to_test - to_train
    return sides


def _first(classes: IntArray, values: NDArray[np.float64], count: int) -> IntArray:
    """Those of the smallest values, of equals the lower label."""
    return classes[np.lexsort((classes, values))[:count]]

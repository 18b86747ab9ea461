"""Fills the tables of docs/studies.md and docs/evaluation.md on how often intervals are wrong.

    python docs/intervals_page.py

A world makes the values of M methods on S seeds and C classes. A comparison is wrong where its
interval lacks the true difference; a study of ten equal methods is wrong where any is told from the
best, or from a reference. Takes some minutes of one core.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from unseen.core.statistics import Effect, bootstrap, crossed, simultaneous
from unseen.reports.tables import Table
from unseen.studies.validity_checks import MIN_CLASSES

Array = NDArray[np.float64]
Shape = tuple[int, int, int]  # methods, seeds, classes
World = Callable[[Generator, Shape], tuple[Array, Array]]  # values of such shape, queries [C]
SIZES = [(classes, seeds) for classes in (10, 30, 100) for seeds in (3, 5)]
METHODS, ONE, TEN, SCORES = 10, 2000, 500, 1000  # studies of two methods, of ten; runs
RARE = 0.5  # what a method adds on the classes that decide
MARKED = re.compile(r"(<!-- simulated (effects|scores) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def parts(by_seed: float, by_class: float, by_query: float, more: float = 1.0) -> World:
    """Normal, of such spreads in the difference of two methods; more: of the last three in ten."""

    def world(rng: Generator, shape: Shape) -> tuple[Array, Array]:
        methods, seeds, classes = shape
        values = by_seed * rng.normal(size=(methods, seeds, 1)) + by_query * rng.normal(size=shape)
        values = (values + by_class * rng.normal(size=(methods, 1, classes))) / np.sqrt(2)
        values[-max(1, 3 * methods // 10) :] *= more
        return values, np.full(classes, 30.0)

    return world


def as_much(rng: Generator, shape: Shape) -> tuple[Array, Array]:
    """Seeds add as much to the error of the mean as classes do."""
    return parts(0.04 * np.sqrt(shape[1] / shape[2]), 0.04, 0.03)(rng, shape)


def long_tail(rng: Generator, shape: Shape) -> tuple[Array, Array]:
    counts = np.maximum(2, np.round(300 / np.arange(1, shape[2] + 1)))
    values, _ = parts(0.01, 0.04, 0.0)(rng, shape)
    return values + rng.normal(size=shape) * np.sqrt(0.05 / counts), counts


def nearly_binary(rng: Generator, shape: Shape) -> tuple[Array, Array]:
    """Most classes are found nearly always or nearly never."""
    methods, _, classes = shape
    counts = np.maximum(2, np.round(15 * np.exp(rng.normal(size=classes))))
    own = rng.beta(0.5, 0.5, size=(methods, 1, classes))
    chance = 0.7 * rng.beta(0.5, 0.5, size=classes) + 0.3 * own
    return rng.binomial(counts.astype(int), np.broadcast_to(chance, shape)) / counts, counts


def rare(fraction: float, noise: float) -> World:
    """Methods are alike but on some classes, of ten methods each on its own; of two the second."""

    def world(rng: Generator, shape: Shape) -> tuple[Array, Array]:
        methods, _, classes = shape
        gain = RARE * (rng.random((methods, 1, classes)) < fraction)
        gain[: int(methods == 2)] = 0.0
        values = gain * (1 + 0.2 * rng.normal(size=shape)) + noise * rng.normal(size=shape)
        return values, np.full(classes, 30.0)

    return world


WORLDS: dict[str, World] = {
    "seeds, classes and queries differ": parts(0.01, 0.04, 0.06),
    "seeds dominate": parts(0.03, 0.02, 0.06),
    "classes dominate": parts(0.002, 0.1, 0.03),
    "seeds add as much as classes": as_much,
    "nothing but queries differs": parts(0.0, 0.0, 0.1),
    "seeds dominate, three methods of ten spread three times as much": parts(0.03, 0.02, 0.06, 3.0),
    "classes dominate, three methods of ten spread so": parts(0.002, 0.1, 0.03, 3.0),
    "class of rank r has 300 / r queries": long_tail,
    "nearly binary recall, log-normal class sizes": nearly_binary,
    "one class in twenty decides, the others are equal": rare(0.05, 0.0),
    "one class in ten decides, the others nearly equal": rare(0.1, 0.03),
}
BEYOND = "one class in twenty decides, the others nearly equal"  # no 30 classes can show it
TRUTH = dict(zip([*WORLDS][-2:], (0.05 * RARE, 0.1 * RARE), strict=True)) | {BEYOND: 0.05 * RARE}
EVERY = WORLDS | {BEYOND: rare(0.05, 0.03)}


def is_conclusive(result: Effect) -> bool:
    """Enough classes, and one that differs: as the validity check of a sample has it."""
    return result.classes >= MIN_CLASSES and any((result.value, *result.variances))


def wrong_pairs(name: str, classes: int, seeds: int, studies: int = ONE) -> tuple[float, float]:
    """The share of intervals without the truth: of those that count, and of all."""
    rng, truth, wrong = np.random.default_rng(classes + seeds), TRUTH.get(name, 0.0), [0, 0]
    for _ in range(studies):
        values, counts = EVERY[name](rng, (2, seeds, classes))
        result = crossed(values[1] - values[0], counts)
        lacks = not result.low - 1e-12 <= truth <= result.high + 1e-12
        wrong[0] += lacks and is_conclusive(result)
        wrong[1] += lacks
    return wrong[0] / studies, wrong[1] / studies


def wrong_families(
    name: str, classes: int, seeds: int, studies: int = TEN, methods: int = METHODS
) -> tuple[float, float]:
    """The share of studies of equal methods that tell any from another: the larger of those
    against the best and those against a reference; by what counts, and by all intervals."""
    rng = np.random.default_rng(classes + seeds)
    wrong = np.zeros((2, 2))
    pairs = (methods * (methods - 1) // 2, methods - 1)
    for _ in range(studies):
        values, counts = EVERY[name](rng, (methods, seeds, classes))
        means = (values * counts).sum(axis=(1, 2))
        for way, against in enumerate((int(means.argmax()), 0)):
            others = [place for place in range(methods) if place != against]
            alone = [crossed(values[place] - values[against], counts) for place in others]
            result = simultaneous(alone, pairs[way])
            message = [each for each in result if each and not each.low <= 0 <= each.high]
            wrong[way] += any(map(is_conclusive, message)), bool(message)
    counted, all_of_them = wrong.max(axis=0) / studies
    return float(counted), float(all_of_them)


def scores_of(name: str, rng: Generator, classes: int) -> tuple[Array, Array, float]:
    """Recall of each class, its queries, and the true mean."""
    counts = np.full(classes, 30.0)
    if "sizes" in name:
        counts = np.maximum(2, np.round(15 * np.exp(rng.normal(size=classes))))
    elif "rank" in name:
        counts = np.maximum(2, np.round(300 / np.arange(1, classes + 1)))
    one, two = SCORE_WORLDS[name]
    chance = rng.beta(one, two, size=classes)
    return rng.binomial(counts.astype(int), chance) / counts, counts, one / (one + two)


SCORE_WORLDS = {
    "recall near 0.6": (6.0, 4.0),
    "recall of 0.8, skewed": (4.0, 1.0),
    "nearly binary recall": (0.5, 0.5),
    "recall near 0.6, log-normal class sizes": (3.0, 2.0),
    "recall near 0.6, class of rank r has 300 / r queries": (3.0, 2.0),
}  # beta distributions of the recall of a class


def wrong_scores(name: str, classes: int, runs: int = SCORES) -> float:
    """The share of runs whose class bootstrap lacks the true score."""
    rng, wrong = np.random.default_rng(classes), 0
    for seed in range(runs):
        recall, counts, truth = scores_of(name, rng, classes)
        groups = torch.arange(classes).repeat_interleave(torch.from_numpy(counts).long())
        (result,) = bootstrap(torch.from_numpy(recall)[groups][:, None], groups, seed=seed)
        wrong += not result.low <= truth <= result.high
    return wrong / runs


def effects_table() -> Table:
    heads = ["world", *(f"{classes} x {seeds}" for classes, seeds in SIZES)]
    rows = [[name, *(_cell(name, *size) for size in SIZES)] for name in EVERY]
    return Table(heads, rows)


def _cell(name: str, classes: int, seeds: int) -> str:
    """2.1, 0.6; in brackets where there is no conclusion."""
    pairs, families = wrong_pairs(name, classes, seeds), wrong_families(name, classes, seeds)
    place = int(classes < MIN_CLASSES)
    text = f"{100 * pairs[place]:.1f}, {100 * families[place]:.1f}"
    return f"({text})" if place else text


def scores_table() -> Table:
    sizes = sorted({classes for classes, _ in SIZES})
    rows = [[n, *(f"{100 * wrong_scores(n, size):.1f}" for size in sizes)] for n in SCORE_WORLDS]
    return Table(["world", *(f"{size} classes" for size in sizes)], rows)


def write(docs: Path) -> None:
    made = {"effects": effects_table, "scores": scores_table}
    for page in (docs / "studies.md", docs / "evaluation.md"):
        text = page.read_text("utf-8")
        tables = {
            name: "\n".join(["", *made[name]().markdown()]) for _, name in MARKED.findall(text)
        }
        page.write_text(MARKED.sub(lambda m, t=tables: m[1] + t[m[2]], text), "utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)

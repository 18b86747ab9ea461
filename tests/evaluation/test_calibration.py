"""Thresholds and bounds against loops over pairs; coverage of the bound on many small worlds."""

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.evaluation.bound_worlds import (
    CLASSES,
    PAGE,
    RATES,
    STRUCTURES,
    Structure,
    bounds,
    chosen_threshold,
    similarities,
    simulate,
)
from unseen.evaluation.calibration import Calibration, calibrate, rates_at, upper_bound
from unseen.neighbors.space import make_space


def world(
    seed: int, num_classes: int, per_class: int = 6, spread: float = 0.45
) -> tuple[Tensor, Tensor]:
    """Classes on a sphere, some of them close to another."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(num_classes, 12, generator=generator, dtype=torch.float64)
    near = torch.randint(0, num_classes, (num_classes // 4,), generator=generator)
    centers[: len(near)] = centers[near] + 0.4 * centers[: len(near)]
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), 12, generator=generator, dtype=torch.float64)
    return centers[labels] + 4 * spread * noise / math.sqrt(12), labels


def by_hand(embeddings: Tensor, labels: Tensor, threshold: float) -> dict[str, float]:
    """Loops over pairs."""
    unit = embeddings / embeddings.norm(dim=1, keepdim=True)
    wrong, right, matched = [], [], set()
    for i in range(len(unit)):
        for j in range(len(unit)):
            if i == j:
                continue
            reached = float(unit[i] @ unit[j]) >= threshold
            (right if labels[i] == labels[j] else wrong).append(reached)
            if reached and labels[i] != labels[j]:
                matched.add(i)
    return {
        "fmr": sum(wrong) / len(wrong),
        "fnmr": 1 - sum(right) / len(right),
        "images_with_false_match": len(matched) / len(unit),
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fmr", [0.003, 0.05])
def test_rates_are_those_of_a_loop(seed: int, fmr: float) -> None:
    embeddings, labels = world(seed, 20)
    made = calibrate(embeddings, labels, fmr=fmr)
    slow = by_hand(embeddings, labels, made.threshold)
    assert made.measured_fmr == pytest.approx(slow["fmr"])
    assert made.fnmr == pytest.approx(slow["fnmr"])
    assert made.images_with_false_match == pytest.approx(slow["images_with_false_match"])
    assert made.measured_fmr <= fmr < made.bound
    lower = by_hand(embeddings, labels, made.threshold - 0.02)  # a lower one lets too many pass
    assert lower["fmr"] > fmr
    assert (made.classes, made.gallery, made.wrong_pairs) == (20, 120, 20 * 19 // 2 * 36)


def test_the_bound_by_hand() -> None:
    """Four classes of equal size; the numbers follow from the definition, class by class."""
    from scipy import stats

    accepted, pairs, sizes = torch.tensor([9.0, 5, 6, 2]), torch.full((4,), 27.0), torch.tensor([3])
    left_out = [(11 - a) / (54 - 27) for a in (9, 5, 6, 2)]
    mean = sum(left_out) / 4
    jackknife = 3 / 4 * sum((value - mean) ** 2 for value in left_out)
    unit = math.sqrt(9**2 + 9**2)  # pairs of two classes, and the accepted ones of the first class
    mean = (11 + unit) / (54 + unit)
    variance = jackknife * (stats.t.ppf(0.95, 3) / stats.norm.ppf(0.95)) ** 2
    variance += (1 - mean) * (unit / (54 + unit)) ** 2
    size = mean * (1 - mean) / variance
    expected = stats.beta.ppf(0.95, mean * size, (1 - mean) * size)
    assert upper_bound(accepted, pairs, sizes.expand(4), 0.95) == pytest.approx(expected)


def bound_of(fractions: np.ndarray, images: int = 8, confidence: float = 0.95) -> float:
    """Of a symmetric table [C, C]: the accepted share of the wrong pairs of two classes."""
    classes = len(fractions)
    accepted = torch.from_numpy(fractions.sum(axis=1) * images**2)
    pairs = torch.full((classes,), float((classes - 1) * images**2), dtype=torch.float64)
    return upper_bound(accepted, pairs, torch.full((classes,), images), confidence)


@pytest.mark.parametrize("classes", [4, 8, 64])
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.999])
def test_more_accepted_pairs_never_lower_the_bound(classes: int, confidence: float) -> None:
    """In one pair of classes, in one class, in all: from none to every pair of images."""
    pair, one, every = np.zeros((3, classes, classes))
    pair[0, 1] = pair[1, 0] = one[0, 1:] = one[1:, 0] = 1
    every[:] = 1 - np.eye(classes)
    none = 1 - (1 - confidence) ** (2 / classes / (classes - 1))
    for table in (pair, one, every):
        counts = [bound_of(table * k / 64, confidence=confidence) for k in range(65)]
        assert counts[0] == pytest.approx(none)
        assert min(np.diff(counts)) > -1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_never_below_that_of_no_accepted_pair(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(20):
        classes = int(generator.integers(3, 30))
        some = generator.random((classes, classes)) < generator.random() ** 3
        fractions = np.triu(some * generator.random(some.shape) ** generator.integers(5), 1)
        bound = bound_of(fractions + fractions.T)
        assert bound >= 1 - 0.05 ** (2 / classes / (classes - 1)) - 1e-12
        assert bound > 2 * fractions.sum() / classes / (classes - 1)


def test_one_large_pair_of_classes_counts_as_one() -> None:
    """Most pairs of images are of two classes: whether those are alike was seen once."""
    sizes = torch.tensor([100, 100, *[1] * 10])
    pairs = sizes * (sizes.sum() - sizes)
    assert upper_bound(torch.zeros(12), pairs.double(), sizes, 0.95) > 0.9


def test_simulated_worlds_are_calibrated_as_others_are() -> None:
    """Thresholds and bounds of the simulation are those of `calibrate`."""
    vectors, wrong, right = next(similarities(STRUCTURES[1], 8, 2))
    labels = torch.arange(8).repeat_interleave(8)
    for rate in RATES:
        threshold = chosen_threshold(wrong.reshape(2, -1), right, rate)
        for number, bound in enumerate(bounds(wrong, threshold)):
            made = calibrate(torch.from_numpy(vectors[number]).flatten(0, 1), labels, fmr=rate)
            assert made.threshold == pytest.approx(threshold[number], abs=2e-6)
            assert made.bound == pytest.approx(bound)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_few_worlds_exceed_the_bound(structure: Structure) -> None:
    for cell in simulate(structure, 8, worlds=200, draws=20).values():
        assert cell.exceeded <= 0.1
    cells = simulate(structure, 32, worlds=60, rates=(0.1, 0.01), draws=20)
    for cell in cells.values():
        assert cell.exceeded <= 0.15  # 0.07 and two standard errors
        assert cell.ratio < 4


@pytest.mark.slow
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_worlds_exceed_the_bound_as_seldom_as_the_page_says(
    structure: Structure, classes: int
) -> None:
    cells = simulate(structure, classes)
    for cell in cells.values():
        assert cell.exceeded <= 0.07
        assert classes < 64 or cell.ratio <= 3
    (line,) = (
        line
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith(f"| {structure.name} | {classes} |")
    )
    on_page = [float(text) for text in re.findall(r"([\d.]+) %", line)]
    now = [100 * cells[how, rate].exceeded for how in ("fixed", "chosen") for rate in RATES]
    assert on_page == pytest.approx(now, abs=0.5)


def coverage(worlds: int, num_classes: int, fmr: float) -> float:
    """How often the rate on 400 fresh classes stays below the bound."""
    below = 0
    for seed in range(worlds):
        embeddings, labels = world(seed, num_classes)
        made = calibrate(embeddings, labels, fmr=fmr)
        fresh, fresh_labels = world(10_000 + seed, 400, per_class=3)
        space = make_space(fresh)
        below += rates_at(space, fresh_labels, made.threshold).fmr <= made.bound
    return below / worlds


def test_the_bound_holds_on_fresh_classes() -> None:
    assert coverage(30, 30, 0.01) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", [15, 50])
@pytest.mark.parametrize("fmr", [0.001, 0.01, 0.1])
def test_the_bound_holds_as_often_as_it_says(num_classes: int, fmr: float) -> None:
    assert coverage(100, num_classes, fmr) >= 0.89  # 0.95 less three standard errors


@pytest.mark.parametrize("fresh_classes", [60, 240])
def test_probabilities_are_what_they_say(fresh_classes: int) -> None:
    """Also in a gallery of another size than they were fitted on."""
    embeddings, labels = world(1, 60, spread=0.8)
    made = calibrate(embeddings, labels)
    assert made.error < 0.05
    assert sum(group.count for group in made.reliability) == 10 * len(labels)
    said_of = [group.predicted for group in made.reliability]
    assert said_of == sorted(said_of)
    fresh, fresh_labels = world(2, fresh_classes, spread=0.8)
    unit = fresh / fresh.norm(dim=1, keepdim=True)
    values, result = (unit @ unit.T).fill_diagonal_(-2).topk(10)
    said = made.probability(values.numpy(), len(fresh))
    right = (fresh_labels[result] == fresh_labels[:, None]).numpy()
    assert said.mean() == pytest.approx(right.mean(), abs=0.06)
    fixed = made.probability(values.numpy(), len(labels))
    if fresh_classes == 240:  # without the size they would promise too much
        assert fixed.mean() > right.mean() + 0.1


def test_raw_embeddings_and_saving() -> None:
    embeddings, labels = world(3, 25)
    made = calibrate(embeddings * 5, labels, fmr=0.02, normalize=False)
    assert made.threshold < 0
    assert Calibration.from_dict(made.to_dict()) == made
    assert made.probability(np.array([-1e9, 0.0]), 150).tolist() == [0.0, pytest.approx(1, abs=0.1)]


def test_a_collapsed_embedding_accepts_nothing() -> None:
    made = calibrate(torch.ones(12, 3), torch.arange(4).repeat_interleave(3))
    assert made.measured_fmr == 0
    assert made.fnmr == 1
    assert made.probability(np.array([1.0]), 12)[0] < 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fmr": 0.0}, "fmr"), ({"fmr": 1.5}, "fmr"), ({"confidence": 1.0}, "confidence")],
)
def test_bad_values_are_refused(options: dict[str, float], message: str) -> None:
    embeddings, labels = world(0, 5)
    with pytest.raises(ValueError, match=message):
        calibrate(embeddings, labels, **options)


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 validation classes"):
        calibrate(torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 1, 1]))
    with pytest.raises(ValueError, match="two images"):
        calibrate(torch.randn(6, 3), torch.arange(6))

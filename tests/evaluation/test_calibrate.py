"""Thresholds and bounds against loops over pairs; coverage of the bound on many small worlds."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.evaluation.calibrate import Calibration, calibrate, rates_at, upper_bound
from unseen.neighbours.space import make_space


def world(
    seed: int, num_classes: int, per_class: int = 6, spread: float = 0.45
) -> tuple[Tensor, Tensor]:
    """Classes on a sphere, some of them close to another."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, 12, generator=generator, dtype=torch.float64)
    near = torch.randint(0, num_classes, (num_classes // 4,), generator=generator)
    centres[: len(near)] = centres[near] + 0.4 * centres[: len(near)]
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), 12, generator=generator, dtype=torch.float64)
    return centres[labels] + 4 * spread * noise / math.sqrt(12), labels


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
        "strangers": len(matched) / len(unit),
    }


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fmr", [0.003, 0.05])
def test_rates_are_those_of_a_loop(seed: int, fmr: float) -> None:
    embeddings, labels = world(seed, 20)
    made = calibrate(embeddings, labels, fmr=fmr)
    slow = by_hand(embeddings, labels, made.threshold)
    assert made.measured_fmr == pytest.approx(slow["fmr"])
    assert made.fnmr == pytest.approx(slow["fnmr"])
    assert made.strangers == pytest.approx(slow["strangers"])
    assert made.measured_fmr <= fmr < made.bound
    lower = by_hand(embeddings, labels, made.threshold - 0.02)  # a lower one lets too many pass
    assert lower["fmr"] > fmr
    assert (made.classes, made.gallery, made.wrong_pairs) == (20, 120, 20 * 19 // 2 * 36)


def test_the_bound_of_a_jackknife_by_hand() -> None:
    """Four classes of equal size; the numbers follow from the definition, class by class."""
    from scipy import stats

    accepted, pairs = torch.tensor([6.0, 2, 4, 0]), torch.full((4,), 30.0)
    share = 12 / 120
    left_out = [(6 - a) / 30 for a in (6, 2, 4, 0)]
    mean = sum(left_out) / 4
    variance = 3 / 4 * sum((value - mean) ** 2 for value in left_out)
    student = stats.t.ppf(0.95, 3) / stats.norm.ppf(0.95)
    effective = share * (1 - share) / variance / student**2
    expected = stats.beta.ppf(0.95, share * effective + 1, (1 - share) * effective)
    assert upper_bound(accepted, pairs, 0.95) == pytest.approx(expected)
    nothing = upper_bound(torch.zeros(40), torch.full((40,), 30.0), 0.95)
    assert nothing == pytest.approx(1 - 0.05 ** (1 / 20))


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
    said_of = [group.said for group in made.reliability]
    assert said_of == sorted(said_of)
    fresh, fresh_labels = world(2, fresh_classes, spread=0.8)
    unit = fresh / fresh.norm(dim=1, keepdim=True)
    values, found = (unit @ unit.T).fill_diagonal_(-2).topk(10)
    said = made.probability(values.numpy(), len(fresh))
    right = (fresh_labels[found] == fresh_labels[:, None]).numpy()
    assert said.mean() == pytest.approx(right.mean(), abs=0.06)
    fixed = made.probability(values.numpy(), len(labels))
    if fresh_classes == 240:  # without the size they would promise too much
        assert fixed.mean() > right.mean() + 0.1


def test_raw_embeddings_and_saving() -> None:
    embeddings, labels = world(3, 25)
    made = calibrate(embeddings * 5, labels, fmr=0.02, normalise=False)
    assert made.threshold < 0
    assert Calibration.from_dict(made.to_dict()) == made
    assert made.probability(np.array([-1e9, 0.0]), 150).tolist() == [0.0, pytest.approx(1, abs=0.1)]


def test_a_collapsed_embedding_accepts_nothing() -> None:
    made = calibrate(torch.ones(12, 3), torch.arange(4).repeat_interleave(3))
    assert made.measured_fmr == 0
    assert made.fnmr == 1
    assert made.probability(np.array([1.0]), 12)[0] < 0.3


@pytest.mark.parametrize(
    ("options", "told"),
    [({"fmr": 0.0}, "fmr"), ({"fmr": 1.5}, "fmr"), ({"confidence": 1.0}, "confidence")],
)
def test_bad_values_are_refused(options: dict[str, float], told: str) -> None:
    embeddings, labels = world(0, 5)
    with pytest.raises(ValueError, match=told):
        calibrate(embeddings, labels, **options)


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 validation classes"):
        calibrate(torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 1, 1]))
    with pytest.raises(ValueError, match="two pictures"):
        calibrate(torch.randn(6, 3), torch.arange(6))

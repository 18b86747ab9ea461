import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.miners.base import draw_per_row
from unseen.miners.distance_weighted import DistanceWeightedMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])


def log_weight(dist: float, dimension: int, lower: float = 0.5) -> float:
    d = min(max(dist, lower), 2 - 1e-4)
    return (2 - dimension) * math.log(d) - (dimension - 3) / 2 * math.log(1 - d * d / 4)


def slow(dist: list[float], dimension: int, upper: float | None) -> list[float]:
    """The probabilities of an anchor's negatives."""
    within = [upper is None or d <= upper for d in dist]
    if not any(within):
        return [1 / len(dist)] * len(dist)
    logs = [log_weight(d, dimension) if w else -math.inf for d, w in zip(dist, within, strict=True)]
    weights = [math.exp(z - max(logs)) for z in logs]
    return [w / sum(weights) for w in weights]


def assert_frequencies(drawn: Tensor, probability: Tensor) -> None:
    count = torch.bincount(drawn, minlength=len(probability)).double()
    error = (len(drawn) * probability * (1 - probability)).sqrt()
    assert ((count - len(drawn) * probability).abs() <= 5 * error + 1).all(), (count, probability)


@pytest.mark.parametrize(
    ("dist", "expected"),
    [(0.5, 91.3702), (1.0, 17.9801), (1.2, 4.9204), (1.4, -0.3115), (1.6, 4.6327)],
)
def test_log_weights_in_128_dimensions(dist: float, expected: float) -> None:
    squared = torch.tensor(dist, dtype=torch.float64) ** 2
    assert DistanceWeightedMiner().log_weights(squared, 128).item() == pytest.approx(
        expected, abs=5e-5
    )


@pytest.mark.parametrize("dimension", [2, 3, 16, 128, 512])
def test_log_weight_at_root_two_is_the_same_in_every_dimension(dimension: int) -> None:
    two = torch.tensor(2.0, dtype=torch.float64)
    got = DistanceWeightedMiner().log_weights(two, dimension).item()
    assert got == pytest.approx(-math.log(2) / 2)


@pytest.mark.parametrize("upper", [None, 1.4])
def test_probabilities_in_128_dimensions(upper: float | None) -> None:
    dist = [1, 1.05, 1.1, 1.2, 1.35, 1.5, 1.7]
    expected = [0.972495, 0.018266, 0.000552, 0.000002, 0, 0, 0.008684]
    if upper is not None:
        expected = [0.981014, 0.018426, 0.000557, 0.000002, 0, 0, 0]
    assert slow(dist, 128, upper) == pytest.approx(expected, abs=1e-6)
    squared = torch.tensor([dist], dtype=torch.float64) ** 2
    weights = DistanceWeightedMiner().log_weights(squared, 128)
    allowed = squared <= (9 if upper is None else upper**2)
    probability = torch.softmax(weights.masked_fill(~allowed, -math.inf), dim=1)[0]
    assert probability.tolist() == pytest.approx(expected, abs=1e-6)
    drawn = draw_per_row(allowed, torch.Generator().manual_seed(0), weights, draws=200_000)
    assert_frequencies(drawn[0], torch.tensor(slow(dist, 128, upper), dtype=torch.float64))


def test_probabilities_of_an_anchor_of_the_fixed_batch(spec: SimpleNamespace) -> None:
    mined = DistanceWeightedMiner(upper=None, per_anchor=40_000)(spec.T, spec.labels)
    drawn = mined.negative[mined.anchor == 0]
    expected = torch.tensor([0, 0, 0.3994, 0.2076, 0.0822, 0.3107], dtype=torch.float64)
    assert slow([1.0746, 1.7976, 1.9696, 1.5094], 2, None) == pytest.approx(
        expected[2:].tolist(), abs=1e-4
    )
    assert_frequencies(drawn, expected / expected.sum())


def test_an_anchor_without_a_negative_within_the_limit_draws_uniformly(
    spec: SimpleNamespace,
) -> None:
    mined = DistanceWeightedMiner(upper=1.4, per_anchor=8000)(spec.T, spec.labels)
    expected = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.float64) / 4
    assert_frequencies(mined.negative[mined.anchor == 5], expected)


def test_an_anchor_without_a_negative_within_the_limit_can_be_dropped(
    spec: SimpleNamespace,
) -> None:
    """As Psomas' code does: anchor 5 of the fixed batch has no negative within 1.4."""
    usual = DistanceWeightedMiner(upper=1.4)(spec.T, spec.labels).anchor.tolist()
    mined = DistanceWeightedMiner(upper=1.4, stranded="drop")(spec.T, spec.labels).anchor.tolist()
    assert mined == [anchor for anchor in usual if anchor != 5] != usual


@pytest.mark.parametrize("upper", [None, 1.4, 1.1])
@pytest.mark.parametrize("with_references", [False, True])
def test_equals_the_probabilities_of_a_slow_loop(
    upper: float | None, with_references: bool
) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(12, 6, generator=generator, dtype=torch.float64)
    refs, ref_labels = None, None
    columns: Tensor = x
    column_labels: Tensor = UNBALANCED
    if with_references:
        columns = refs = torch.randn(9, 6, generator=generator, dtype=torch.float64)
        column_labels = ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5, 2, 0])
    miner = DistanceWeightedMiner(upper=upper, per_anchor=4000)
    mined = miner(x, UNBALANCED, refs, ref_labels)
    for a in range(12):
        dist = [float((x[a] / x[a].norm() - c / c.norm()).norm()) for c in columns]
        same = [j for j in range(len(columns)) if column_labels[j] == UNBALANCED[a]]
        positives = [j for j in same if with_references or j != a]
        negatives = [j for j in range(len(columns)) if j not in same]
        of_anchor = mined.anchor == a
        assert int(of_anchor.sum()) == (4000 if positives else 0)
        if not positives:
            continue
        probability = torch.zeros(2, len(columns), dtype=torch.float64)
        probability[0, positives] = 1 / len(positives)
        chance = slow([dist[n] for n in negatives], 6, upper)
        probability[1, negatives] = torch.tensor(chance, dtype=torch.float64)
        assert_frequencies(mined.positive[of_anchor], probability[0])
        assert_frequencies(mined.negative[of_anchor], probability[1])


def test_distances_below_the_lower_clamp_weigh_alike() -> None:
    squared = torch.tensor([0.0, 0.01, 0.2, 0.25], dtype=torch.float64)
    weights = DistanceWeightedMiner().log_weights(squared, 128)
    assert (weights == weights[0]).all()


def test_opposite_and_equal_vectors_are_finite() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    weights = DistanceWeightedMiner().log_weights(torch.tensor([0.0, 4.0]), 2)
    assert torch.isfinite(weights).all()
    mined = DistanceWeightedMiner(upper=None)(x, torch.tensor([0, 0, 1, 1]))
    assert len(mined.anchor) == 4


def test_high_dimensions_do_not_underflow_in_float32() -> None:
    x = torch.randn(40, 512, generator=torch.Generator().manual_seed(0))
    x[0] = x[1] = x[2] + 0.01  # one class with a near foreign item, and 37 far from everything
    y = torch.tensor([0, 0, 1, *([1] * 5), *(torch.arange(32) % 8 + 2).tolist()])
    miner = DistanceWeightedMiner(upper=None, per_anchor=50)
    mined = miner(x, y)
    assert (mined.negative[mined.anchor <= 1] == 2).all()
    far = mined.negative[mined.anchor == 20]
    assert len(far.unique()) > 5  # a global maximum would leave nothing to draw from


def test_length_of_embeddings_does_not_matter() -> None:
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    first = DistanceWeightedMiner(seed=1)(x, UNBALANCED)
    second = DistanceWeightedMiner(seed=1)(x * torch.arange(1, 13)[:, None], UNBALANCED)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_as_many_triplets_as_the_class_has_items() -> None:
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(4))
    mined = DistanceWeightedMiner(**DistanceWeightedMiner.PRESETS["thesis_code"])(x, UNBALANCED)
    sizes = [int((label == UNBALANCED).sum()) for label in UNBALANCED]
    expected = [0 if size == 1 else size for size in sizes]
    assert torch.bincount(mined.anchor, minlength=12).tolist() == expected


@pytest.mark.parametrize(
    "wrong", [{"lower": 0.0}, {"lower": 2.0}, {"upper": 0.4}, {"per_anchor": 0}]
)
def test_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DistanceWeightedMiner(**wrong)


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in DistanceWeightedMiner()(x, torch.zeros(4, dtype=torch.long)))

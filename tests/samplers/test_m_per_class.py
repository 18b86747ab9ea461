"""SPC-n: exact content, coverage of the walk, frequencies of the other variants, small classes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unseen.samplers.m_per_class import SMALL_CLASSES, VARIANT_NAMES, MPerClassSampler

FEW = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def labels_of(items: Any, labels: Any) -> dict[int, int]:
    return dict(zip(items.tolist(), labels.tolist(), strict=True))


@FEW
@given(
    sizes=st.lists(st.integers(4, 12), min_size=5, max_size=12),
    per_class=st.integers(1, 4),
    num_classes=st.integers(2, 5),
    variant=st.sampled_from(["walk", "uniform", "by_size"]),
    seed=st.integers(0, 99),
)
def test_every_batch_has_exactly_n_different_images_of_p_classes(
    classes_of: Callable[..., Any],
    sizes: list[int],
    per_class: int,
    num_classes: int,
    variant: str,
    seed: int,
) -> None:
    items, labels = classes_of(sizes, seed)
    batch_size = per_class * num_classes
    sampler = MPerClassSampler(items, labels, batch_size, per_class, variant, seed=seed, steps=7)
    label_of = labels_of(items, labels)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        for batch in sampler:
            assert len(set(batch)) == len(batch)
            counts = Counter(label_of[position] for position in batch)
            assert set(counts.values()) == {per_class}
            assert len(counts) == num_classes


def test_the_walk_covers_all_classes_in_an_epoch_and_all_images_over_time(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of(list(range(2, 32)))
    sampler = MPerClassSampler(items, labels, 20, per_class=4)
    seen: Counter[int] = Counter()
    for epoch in range(12):
        sampler.set_epoch(epoch)
        assert sampler.describe()["classes_drawn"] == 30
        seen.update(position for batch in sampler for position in batch)
    assert set(seen) == set(items.tolist())


def test_the_walk_draws_every_image_of_a_class_equally_often(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of([12] * 10)
    sampler = MPerClassSampler(items, labels, 20, per_class=4, steps=60)
    times = Counter(position for batch in sampler for position in batch)
    assert len(times) == 120
    for label in set(labels.tolist()):
        own = [times[position] for position in items[labels == label].tolist()]
        assert max(own) - min(own) <= 1


@pytest.mark.parametrize("variant", ["uniform", "revisit_code", "walk"])
def test_class_frequencies_are_uniform(variant: str, classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of(list(range(2, 22)))
    steps = 500
    sampler = MPerClassSampler(items, labels, 8, per_class=2, variant=variant, steps=steps)
    label_of = labels_of(items, labels)
    times = Counter(label_of[batch[i]] for batch in sampler for i in range(0, 8, 2))
    expected = steps * 4 / 20
    assert len(times) == 20
    assert all(abs(count - expected) < 5 * expected**0.5 for count in times.values())


def test_by_size_draws_large_classes_more_often_and_lone_ones_never(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of([1, 1, 5, 10, 25])
    sampler = MPerClassSampler(items, labels, 2, per_class=2, variant="by_size", steps=4000)
    label_of, sizes = labels_of(items, labels), Counter(labels.tolist())
    times = Counter(sizes[label_of[batch[0]]] for batch in sampler)
    assert set(times) == {5, 10, 25}
    for size, count in times.items():
        fraction = size / 40
        assert abs(count - 4000 * fraction) < 5 * (4000 * fraction * (1 - fraction)) ** 0.5


@pytest.mark.parametrize(
    ("num_classes", "expected"),
    [(100, 43.0), (98, 42.8), (11_318, 55.9)],
    ids=["CUB", "Cars", "SOP"],
)
def test_revisit_code_holds_as_many_classes_as_computed(num_classes: int, expected: float) -> None:
    """P = 56 draws with replacement: CUB 43.0, Cars 42.8, Online Products 55.9 distinct classes."""
    labels = np.repeat(np.arange(num_classes), 2)
    steps = 600
    sampler = MPerClassSampler(
        np.arange(len(labels)), labels, 112, 2, variant="revisit_code", steps=steps
    )
    result = [len(set(labels[batch].tolist())) for batch in sampler]
    deviation = np.std(result) / steps**0.5
    assert abs(np.mean(result) - expected) < 5 * deviation + 0.06


@pytest.mark.parametrize(("size", "chance"), [(59, 0.017), (5, 0.2)])
def test_revisit_code_takes_the_same_image_twice_as_often_as_computed(
    size: int, chance: float, classes_of: Callable[..., Any]
) -> None:
    items, labels = classes_of([size] * 10)
    sampler = MPerClassSampler(items, labels, 20, 2, variant="revisit_code", steps=1000)
    pairs = np.array(list(sampler)).reshape(-1, 2)
    twice = (pairs[:, 0] == pairs[:, 1]).mean()
    assert abs(twice - chance) < 5 * (chance * (1 - chance) / len(pairs)) ** 0.5 + 0.0005


def test_thesis_code_draws_distinct_classes_and_images_with_replacement(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of([5] * 10)
    sampler = MPerClassSampler(items, labels, 20, 5, variant="thesis_code", steps=1000)
    label_of, batches = labels_of(items, labels), np.array(list(sampler))
    assert all(len({label_of[item] for item in batch.tolist()}) == 4 for batch in batches)
    distinct = np.mean([len(set(group.tolist())) for group in batches.reshape(-1, 5)])
    assert abs(distinct - 5 * (1 - 0.8**5)) < 0.05  # 3.36 of 5 images on average


@pytest.mark.parametrize("variant", ["walk", "uniform"])
def test_small_classes_follow_the_policy(variant: str, classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([1, 3, 8, 8])
    label_of, sizes = labels_of(items, labels), Counter(labels.tolist())
    drawn = {}
    for policy in SMALL_CLASSES:
        sampler = MPerClassSampler(items, labels, 8, 4, variant, policy, steps=40)
        drawn[policy] = {sizes[label_of[p]] for batch in sampler for p in batch}
        for batch in sampler:
            counts = Counter(label_of[p] for p in batch)
            assert set(counts.values()) == {4}
            for label in counts:
                different = {p for p in batch if label_of[p] == label}
                assert len(different) == min(4, sizes[label]), "repeats only what it must"
    assert drawn["resample"] == {3, 8}
    assert drawn["skip"] == {8}
    assert drawn["resample_singles"] == {1, 3, 8}
    skip = MPerClassSampler(items, labels, 8, 4, variant, "skip")
    assert skip.left_out() == {"one image, no positive pair": 1, "fewer than 4 images": 1}


def test_steps_set_the_epoch(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([8] * 10)
    assert len(MPerClassSampler(items, labels, 16)) == 5
    assert len(list(MPerClassSampler(items, labels, 16, steps=33))) == 33


def test_bad_values_say_what_to_do(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([8] * 10)
    with pytest.raises(ValueError, match=r"multiple of per_class.*20 and 3: try batch_size=18"):
        MPerClassSampler(items, labels, 20, 3)
    with pytest.raises(
        ValueError, match=r"needs 20 classes .* can be drawn are 10: lower batch_size"
    ):
        MPerClassSampler(items, labels, 40, 2)
    with pytest.raises(ValueError, match="variant must be one of walk, uniform"):
        MPerClassSampler(items, labels, 20, variant="wlk")
    with pytest.raises(ValueError, match="small_classes must be one of resample, skip"):
        MPerClassSampler(items, labels, 20, small_classes="drop")
    for variant in VARIANT_NAMES:
        with pytest.raises(ValueError, match="classes that can be drawn are 0"):
            MPerClassSampler(np.arange(6), np.arange(6), 4, 2, variant)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_temperature_draws_by_a_power_of_the_size(
    classes_of: Callable[..., Any], temperature: float
) -> None:
    items, labels = classes_of([4, 16, 64])
    sampler = MPerClassSampler(items, labels, 2, per_class=2, temperature=temperature, steps=3000)
    label_of, sizes = labels_of(items, labels), Counter(labels.tolist())
    times = Counter(sizes[label_of[batch[0]]] for batch in sampler)
    total = sum(size**temperature for size in (4, 16, 64))
    for size in (4, 16, 64):
        fraction = size**temperature / total
        assert abs(times[size] - 3000 * fraction) < 5 * (3000 * fraction * (1 - fraction)) ** 0.5
    with pytest.raises(ValueError, match="temperature must be a number, and goes with variant"):
        MPerClassSampler(items, labels, 2, per_class=2, temperature=0.5, variant="by_size")
    for far in (-1000.0, 1000.0):
        with pytest.raises(ValueError, match="some classes would never be drawn"):
            MPerClassSampler(items, labels, 2, per_class=2, temperature=far)

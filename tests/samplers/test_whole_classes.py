"""Whole classes: none split, none twice, all equally often."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unseen.samplers.whole_classes import WholeClassesSampler

FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FEW
@given(
    sizes=st.lists(st.integers(1, 9), min_size=4, max_size=20),
    overflow=st.sampled_from(["skip", "truncate"]),
    seed=st.integers(0, 99),
)
def test_no_class_is_split_nor_alone_nor_comes_twice(
    classes_of: Callable[..., Any], sizes: list[int], overflow: str, seed: int
) -> None:
    items, labels = classes_of(sizes, seed)
    if sorted(size for size in sizes if size > 1)[1:] == []:
        return
    sampler = WholeClassesSampler(items, labels, 18, overflow, steps=5, seed=seed)
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    size_of = Counter(labels.tolist())
    everything = sum(size for size in sizes if size > 1)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        for batch in sampler:
            counts = Counter(label_of[position] for position in batch)
            assert len(set(batch)) == len(batch) <= 18
            assert min(counts.values()) >= 2
            split = [label for label, count in counts.items() if count < size_of[label]]
            assert len(split) <= (overflow == "truncate")
            short = 1 if overflow == "truncate" else max(sizes) - 1
            assert len(batch) >= min(18 - short, everything)


def test_all_classes_come_equally_often_over_the_epochs(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([5] * 30)
    sampler = WholeClassesSampler(items, labels, 23, steps=7)
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    times: Counter[int] = Counter()
    for epoch in range(30):
        sampler.set_epoch(epoch)
        for batch in sampler:
            times.update({label_of[position] for position in batch})
    assert len(times) == 30
    assert max(times.values()) - min(times.values()) <= 1


def test_online_products_batches_hold_eighteen_or_nineteen_classes() -> None:
    """5.26 images per class on average, batch 100."""
    sizes = np.random.default_rng(0).integers(2, 13, size=4000)
    sizes = np.where(np.arange(4000) % 4 < 3, np.minimum(sizes, 5), sizes)
    labels = np.repeat(np.arange(4000), sizes)
    assert abs(sizes.mean() - 5.26) < 0.3
    sampler = WholeClassesSampler(np.arange(len(labels)), labels, 100)
    result = np.mean([len(np.unique(labels[batch])) for batch in sampler])
    assert 100 / sizes.mean() - 1 < result < 100 / sizes.mean()


def test_classes_too_large_for_a_batch_are_left_out_or_cut(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([1, 4, 4, 30])
    skip = WholeClassesSampler(items, labels, 10, steps=20)
    assert skip.left_out() == {"one image, no positive pair": 1, "more than 10 images": 1}
    assert {len(batch) for batch in skip} == {8}
    cut = WholeClassesSampler(items, labels, 10, "truncate", steps=40)
    assert cut.left_out() == {"one image, no positive pair": 1}
    assert {len(batch) for batch in cut} == {10}
    large = {p for batch in cut for p in batch} - {p for batch in skip for p in batch}
    assert len(large) == 30, "other images of it each time"


def test_bad_values_say_what_to_do(classes_of: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="overflow must be skip or truncate, got 'cut'"):
        WholeClassesSampler(*classes_of([4, 4]), 10, "cut")
    with pytest.raises(
        ValueError, match=r"no two classes .* fit into a batch of 7: raise batch_size"
    ):
        WholeClassesSampler(*classes_of([4, 4]), 7)

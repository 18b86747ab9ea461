"""SPC-R: different images, at least one pair, uniform over images or over classes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unseen.samplers.random_with_pair import RandomWithPairSampler


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=14).filter(lambda s: max(s) > 1),
    class_uniform=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_every_batch_has_a_pair_and_no_repeat(
    classes_of: Callable[..., Any],
    sizes: list[int],
    class_uniform: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    """Also where nearly every class has one image, and where the batch is the whole data set."""
    items, labels = classes_of(sizes, seed)
    batch_size = data.draw(st.integers(2, len(items)))
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    for batch in RandomWithPairSampler(
        items, labels, batch_size, class_uniform, steps=6, seed=seed
    ):
        assert len(set(batch)) == len(batch) == batch_size
        assert max(Counter(label_of[position] for position in batch).values()) > 1


def test_images_or_classes_are_equally_frequent() -> None:
    labels = np.repeat([0, 1], [40, 10])
    items = np.arange(50)
    for class_uniform, fraction in ((False, 0.8), (True, 0.5)):
        sampler = RandomWithPairSampler(items, labels, 2, class_uniform, steps=4000)
        first = np.array([batch[0] for batch in sampler])
        drawn = (labels[first] == 0).mean()
        assert abs(drawn - fraction) < 5 * (fraction * (1 - fraction) / 4000) ** 0.5
        times = np.bincount(first[labels[first] == 0], minlength=50)[:40]
        expected = 4000 * fraction / 40
        assert (abs(times - expected) < 5 * expected**0.5).all()


def test_the_last_image_joins_a_random_earlier_one() -> None:
    labels = np.repeat(np.arange(10), 10)
    sampler = RandomWithPairSampler(np.arange(100), labels, 5, steps=2000)
    same = np.array([labels[batch[:4]] == labels[batch[4]] for batch in sampler])
    assert same.any(axis=1).all()
    places = same.mean(axis=0)
    assert (places > 0.25).all()
    assert np.ptp(places) < 0.06


def test_data_without_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="no training class has two images"):
        RandomWithPairSampler(np.arange(6), np.arange(6), 4)
    with pytest.raises(ValueError, match="at most the 6 training images, got 7"):
        RandomWithPairSampler(np.arange(6), np.zeros(6), 7)

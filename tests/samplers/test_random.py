"""Random: a shuffle cut into blocks."""

from collections.abc import Callable
from typing import Any

import pytest

from unseen.samplers.random import RandomSampler


def test_no_image_twice_in_an_epoch_and_less_than_a_batch_left(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of([7, 1, 9, 6])
    sampler = RandomSampler(items, labels, batch_size=5, seed=2)
    unseen = set(items.tolist())
    for epoch in range(30):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        flat = [position for batch in batches for position in batch]
        assert [len(batch) for batch in batches] == [5, 5, 5, 5]
        assert len(set(flat)) == 20
        unseen -= set(flat)
    assert not unseen, "other images are left over each epoch"


def test_a_batch_larger_than_the_data_is_refused(classes_of: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="at most the 5 training images, got 6"):
        RandomSampler(*classes_of([2, 3]), batch_size=6)

"""Splits share no class, cover what can be used, and depend on nothing but the seed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unseen.protocols.half_split import HalfSplit


def data(sizes: list[int], test: list[int] | None = None) -> Any:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    official = None if test is None else np.array(test)
    return SimpleNamespace(labels=labels, official_test_classes=official)


def classes_of(dataset: Any, items: Any) -> set[int]:
    return set(dataset.labels[items].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_parts_share_no_class_and_cover_all(seed: int) -> None:
    dataset = data([3] * 40)
    (split,) = HalfSplit()(dataset, seed)
    parts = [classes_of(dataset, p) for p in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [17, 3, 20]
    assert set.union(*parts) == set(range(40))
    assert len(np.concatenate([split.train, split.validation, split.test])) == 120


def test_the_authors_test_classes_are_kept() -> None:
    dataset = data([2] * 20, test=[0, 3, 5, 7, 9])
    (split,) = HalfSplit(0.2)(dataset, 1)
    assert classes_of(dataset, split.test) == {0, 3, 5, 7, 9}
    assert len(classes_of(dataset, split.validation)) == 3


def test_classes_with_one_item_neither_train_nor_select() -> None:
    dataset = data([1] * 10 + [4] * 12)
    (split,) = HalfSplit()(dataset, 0)
    for part in (split.train, split.validation, split.test):
        assert min(classes_of(dataset, part)) >= 10


def test_same_seed_same_split_other_seed_another() -> None:
    dataset = data([3] * 40)
    one, again, other = (HalfSplit()(dataset, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(one.test, again.test)
    assert not np.array_equal(one.test, other.test)


def test_too_few_classes_is_an_error_with_advice() -> None:
    with pytest.raises(ValueError, match="at least 4 are needed"):
        HalfSplit()(data([3] * 5), 0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        HalfSplit(1.5)

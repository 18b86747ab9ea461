"""One split for all seeds; the share and the split's own seed decide it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unseen.protocols.fixed_validation import FixedValidation


def data(num_classes: int) -> Any:
    labels = np.repeat(np.arange(num_classes), 3)
    return SimpleNamespace(labels=labels, official_test_classes=np.arange(num_classes // 2))


def test_the_run_seed_changes_nothing_and_the_split_seed_does() -> None:
    dataset = data(200)
    one, same = (FixedValidation()(dataset, seed)[0] for seed in (0, 7))
    assert np.array_equal(one.validation, same.validation)
    (other,) = FixedValidation(split_seed=1)(dataset, 0)
    assert not np.array_equal(one.validation, other.validation)


@pytest.mark.parametrize(("fraction", "classes"), [(0.3, 30), (0.2, 20), (0.1, 10), (0.05, 5)])
def test_any_ratio_of_the_training_classes(fraction: float, classes: int) -> None:
    dataset = data(200)
    (split,) = FixedValidation(fraction)(dataset, 0)
    parts = [set(dataset.labels[items]) for items in (split.train, split.validation, split.test)]
    assert [len(part) for part in parts] == [100 - classes, classes, 100]
    assert set.union(*parts) == set(range(200))
    assert parts[2] == set(range(100))


def test_validation_classes_are_not_neighbors() -> None:
    (split,) = FixedValidation()(data(200), 0)
    classes = np.unique(split.validation // 3)
    assert classes.max() - classes.min() > len(classes)


def test_a_bad_fraction_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        FixedValidation(0.0)

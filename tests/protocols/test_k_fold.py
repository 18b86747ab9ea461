"""Each training class selects exactly once; the published ten folds give the published numbers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unseen.core.statistics import over_seeds
from unseen.protocols.k_fold import KFold
from unseen.reproductions import numbers as published


def data(num_classes: int) -> Any:
    labels = np.repeat(np.arange(num_classes), 2)
    return SimpleNamespace(labels=labels, official_test_classes=np.arange(10))


@pytest.mark.parametrize(("classes", "folds"), [(110, 10), (73, 10), (21, 5), (14, 2)])
def test_each_class_is_in_validation_once_and_folds_differ_by_one(classes: int, folds: int) -> None:
    dataset = data(classes)
    splits = KFold(folds)(dataset, 3)
    validation = [np.unique(dataset.labels[split.validation]) for split in splits]
    assert sorted(np.concatenate(validation)) == list(range(10, classes))
    sizes = [len(fold) for fold in validation]
    assert max(sizes) - min(sizes) <= 1
    for split, fold in zip(splits, validation, strict=True):
        train = set(dataset.labels[split.train])
        assert train.isdisjoint(fold)
        assert train | set(fold) == set(range(10, classes))
        assert set(dataset.labels[split.test]) == set(range(10))


def test_only_the_split_seed_draws_the_folds() -> None:
    dataset = data(60)
    one, same = (KFold(5)(dataset, seed)[2] for seed in (0, 9))
    assert np.array_equal(one.validation, same.validation)
    assert not np.array_equal(KFold(5, split_seed=1)(dataset, 0)[2].validation, one.validation)


def test_too_many_folds_are_refused() -> None:
    with pytest.raises(ValueError, match="10 folds need 20 training classes"):
        KFold(10)(data(29), 0)
    with pytest.raises(ValueError, match="at least 2"):
        KFold(1)


def test_the_published_ten_folds() -> None:
    rows = published.table("thesis_protocols")
    folds = [row["test_r1"] for row in rows if row["table"] == "10-fold multi_similarity fold"]
    printed = next(row for row in rows if row["table"] == "10-fold")
    spread = over_seeds([float(value) for value in folds if value is not None])
    assert spread.count == 10
    assert spread.mean == pytest.approx(printed["test_r1"], abs=0.0051)  # 63.605, printed 63.61
    assert spread.std == pytest.approx(printed["test_std"], abs=0.005)
    assert (printed["test_r1"], printed["test_std"]) == (63.61, 0.59)

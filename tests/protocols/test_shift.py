"""Steps of stages as splits: class-disjoint, the same for all seeds, from features or a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.data.arrays import Arrays
from unseen.protocols.shift import Shift, own_halves


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    rng = np.random.default_rng(0)
    labels = np.append(np.repeat(np.arange(20), 5), 20)  # the last class has a single item
    rows = 3 * rng.normal(size=(21, 4))[labels] + rng.normal(size=(101, 4))
    np.savez(tmp_path / "x.npz", features=rows.astype(np.float32), labels=labels)
    return Arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("step", [1, 4, 9])
def test_parts_share_no_class_and_seeds_share_the_split(dataset: Any, step: int) -> None:
    protocol = Shift(step)
    (split,) = protocol(dataset, 0)
    parts = [set(dataset.labels[p]) for p in (split.train, split.validation, split.test)]
    assert all(not a & b for i, a in enumerate(parts) for b in parts[:i])
    assert min(map(len, parts)) >= 2
    chosen = protocol.splits(dataset).at(step)
    assert parts[0] | parts[1] == set(chosen.train)
    assert parts[2] == set(chosen.test)
    assert 20 not in set.union(*parts)
    (again,) = protocol(dataset, 7)
    assert np.array_equal(split.train, again.train)
    (other,) = Shift(step, split_seed=1)(dataset, 0)  # the second half is tested: the same stages
    assert np.array_equal(split.test, other.test)
    assert not np.array_equal(split.validation, other.validation)


def test_a_table_does_what_the_features_do(dataset: Any, tmp_path: Path) -> None:
    table = tmp_path / "stages.csv"
    Shift().splits(dataset).write(table, dataset.label_names)
    (one,), (two,) = Shift(6)(dataset, 0), Shift(6, table=str(table))(dataset, 0)
    assert np.array_equal(one.train, two.train)
    assert np.array_equal(one.test, two.test)
    with pytest.raises(ValueError, match="between 1 and 9, got 10"):
        Shift(10)(dataset, 0)


def test_images_need_a_table(dataset: Any) -> None:
    class ImageBatches:
        label_names = dataset.label_names
        labels = dataset.labels
        official_test_classes = None

    images: Any = ImageBatches()
    with pytest.raises(ValueError, match="unseen data shift DATA --out stages"):
        Shift()(images, 0)
    with pytest.raises(ValueError, match="step must be at least 1"):
        Shift(0)
    train, test = own_halves(images, 3)
    assert len(train) == len(test) == 10

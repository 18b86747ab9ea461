"""Wrong labels on purpose: as many as asked, of training items alone, the same for a seed."""

from pathlib import Path

import numpy as np
import pytest

from tests.runs.test_run import setting_of
from unseen.config import schema as configs
from unseen.config.tables import LabelNoiseSettings
from unseen.core.contracts import Annotations, IntArray
from unseen.data.base import Described
from unseen.data.in_memory.user_data import UserFeatures
from unseen.runs.label_noise import with_noise
from unseen.runs.run import train_and_evaluate
from unseen.training.run_folder import RunFolder

LABELS = np.repeat(np.arange(10), 12)
TRAIN = np.flatnonzero(LABELS < 8)


def features() -> UserFeatures:
    x = np.random.default_rng(0).normal(size=(len(LABELS), 5)).astype(np.float32)
    names = [str(c) for c in range(10)]
    return UserFeatures(x, Described(LABELS, names, None, Annotations()))


def changed(fraction: float, kind: str = "symmetric", seed: int = 0) -> IntArray:
    """Labels, and a check of what holds for both kinds."""
    noise = LabelNoiseSettings.model_validate({"fraction": fraction, "kind": kind})
    labels = with_noise(features(), TRAIN, noise, seed)
    assert np.array_equal(labels, with_noise(features(), TRAIN, noise, seed))
    rest = np.setdiff1d(np.arange(len(LABELS)), TRAIN)
    assert np.array_equal(labels[rest], LABELS[rest])
    assert set(labels[TRAIN]) <= set(LABELS[TRAIN])
    return labels


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_symmetric_changes_exactly_the_fraction_to_any_other_class(fraction: float) -> None:
    wrong = changed(fraction) != LABELS
    assert wrong.sum() == round(fraction * len(TRAIN))
    assert not np.array_equal(changed(fraction, seed=1), changed(fraction))


def test_what_is_wrong_at_one_fraction_is_wrong_at_a_larger_one() -> None:
    little, much = changed(0.1), changed(0.4)
    wrong = little != LABELS
    assert np.array_equal(little[wrong], much[wrong])


def test_all_other_classes_are_equally_likely() -> None:
    steps = [(changed(0.9, seed=seed) - LABELS)[TRAIN] % 8 for seed in range(30)]
    counts = np.bincount(np.concatenate(steps), minlength=8)[1:]
    expected = counts.sum() / 7
    assert ((counts - expected) ** 2 / expected).sum() < 22.5  # chi square, 6 degrees, 0.1 %


def test_small_clusters_dissolve_whole_classes() -> None:
    labels = changed(0.3, "small_cluster")
    wrong = labels != LABELS
    gone = np.unique(LABELS[wrong])
    assert wrong.sum() == 12 * len(gone) == 36  # the third class reaches 0.3 of 96 items
    assert not set(gone) & set(labels[TRAIN])
    for each in gone:  # half as many clusters as items, some to the same class
        targets, sizes = np.unique(labels[each == LABELS], return_counts=True)
        assert len(targets) <= 6
        assert sizes.max() > 1
    assert set(gone) <= set(np.unique(LABELS[changed(0.5, "small_cluster") != LABELS]))


def test_a_fraction_that_leaves_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match="dissolve all 8"):
        changed(0.95, "small_cluster")


def test_the_words_of_a_config() -> None:
    def made(*words: str) -> configs.Config:
        return configs.make(configs.override({}, list(words)))

    assert made("label_noise=0.2").data.label_noise == LabelNoiseSettings(fraction=0.2)
    assert made("label_noise=0").data.label_noise is None
    assert made("label_noise=none").data.label_noise is None
    words = ("label_noise=0.2", "label_noise.kind=small_cluster")
    assert made(*words).data.label_noise == LabelNoiseSettings(fraction=0.2, kind="small_cluster")
    with pytest.raises(ValueError, match=r"label_noise.*less than 1"):
        made("label_noise=20.0")
    filtered = made("label_filter=prism", "label_filter.fraction=0.3").training.label_filter
    assert filtered is not None
    assert (filtered.fraction, filtered.window) == (0.3, 30)


@pytest.mark.usefixtures("narrow_network")
def test_a_run_trains_on_them_and_is_evaluated_without(tmp_path: Path) -> None:
    context = setting_of("label_noise=0.3", "label_noise.kind=small_cluster")
    train, labels = context.split.train, context.dataset.labels
    wrong = int((context.training_labels[train] != labels[train]).sum())
    assert wrong >= 0.3 * len(train) - 1
    result = train_and_evaluate(context, tmp_path / "noisy", "test")
    assert result.split.changed_labels == wrong
    assert RunFolder(tmp_path / "noisy").manifest().data.split.changed_labels == wrong
    plain = train_and_evaluate(setting_of(), tmp_path / "plain", "test")
    assert plain.split.changed_labels is None
    assert plain.scores["untrained"] == result.scores["untrained"]
    assert plain.scores["trained"] != result.scores["trained"]

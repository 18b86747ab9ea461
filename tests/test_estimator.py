"""The estimator keeps scikit-learn's promises, learns, and wraps a run."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from unseen.config import schema as configs
from unseen.estimator import MetricLearner
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate


def test_scikit_learns_own_checks() -> None:
    failed = check_estimator(MetricLearner(epochs=3), on_fail=None, on_skip=None)
    message = [f"{c['check_name']}: {c['exception']!r}" for c in failed if c["status"] == "failed"]
    assert message == []


def noisy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes in four of forty columns; the others are louder noise."""
    x, y = make_blobs(400, 4, centers=10, cluster_std=1.0, random_state=3)
    noise = np.random.default_rng(seed).normal(0, 4, (400, 36))
    return np.concatenate([x, noise], axis=1), y


@pytest.mark.parametrize("loss", ["multi_similarity", "proxy_anchor", "triplet"])
def test_it_learns_which_columns_matter(loss: str) -> None:
    x, y = noisy(0)
    train, test = np.arange(0, 400, 2), np.arange(1, 400, 2)
    plain = KNeighborsClassifier(1).fit(x[train], y[train]).score(x[test], y[test])
    learner = MetricLearner(loss, embedding_size=8, epochs=60, lr=0.01).fit(x[train], y[train])
    assert learner.score(x[test], y[test]) > plain + 0.1
    assert np.linalg.norm(learner.transform(x), axis=1) == pytest.approx(1, abs=1e-5)


def test_pipelines_and_searches() -> None:
    x, y = noisy(1)
    steps = make_pipeline(MetricLearner(epochs=2), KNeighborsClassifier(3))
    search = GridSearchCV(steps, {"metriclearner__embedding_size": [4, 8]}, cv=2).fit(x, y)
    assert search.best_params_["metriclearner__embedding_size"] in (4, 8)


def test_around_a_run_on_features(tmp_path: Path) -> None:
    x, y = noisy(2)
    np.savez(tmp_path / "x.npz", features=x.astype(np.float32), labels=y)
    words = ["data=arrays", f"data.root={tmp_path / 'x.npz'}", "epochs=1", "batch_size=4"]
    words += ["sampler.per_class=2", "embedding_size=8", 'metrics=["recall@1"]']
    train_and_evaluate(prepare(configs.make(configs.override({}, words))), tmp_path / "run", "test")
    learner = MetricLearner.from_run(tmp_path / "run", x[::2], y[::2])
    assert learner.transform(x).shape == (400, 8)
    assert learner.score(x[::2], y[::2]) == 1  # every item is its own nearest
    with pytest.raises(ValueError, match="has 3 features"):
        learner.transform(x[:, :3])

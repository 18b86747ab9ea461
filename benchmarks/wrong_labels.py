"""How many wrong labels the first tenth of the review list holds: ours beside cleanlab's.

    unseen data features cub200 backbone=efficientnet_lite0 pooling=avg --out cub.npz data.root=...
    pip install cleanlab
    python benchmarks/wrong_labels.py cub.npz --seeds 3

The labels of a tenth of the training items are changed, each to any other class. `unseen data
noise` ranks all items by suspicion. cleanlab ranks by its label quality scores (the best of its
three counts), from probabilities of scikit-learn's classifiers for items that they were not fitted
on (5 folds): logistic regression on the features, as in its guides, and 10 nearest neighbours by
the cosine. Printed is the share of the changed labels that stand in the first tenth of each list,
and the seconds of one core. Without cleanlab installed ours stands alone.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.config.tables import LabelNoiseSettings
from unseen.core.contracts import Annotations
from unseen.data.arrays import Arrays
from unseen.data.base import Described
from unseen.data.in_memory.user_data import UserFeatures
from unseen.runs.label_issue_scores import label_issues
from unseen.runs.label_noise import with_noise

Rankings = Callable[[NDArray[Any], NDArray[Any]], list[NDArray[Any]]]  # features, labels -> items
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")  # of cleanlab


def ours(features: NDArray[Any], labels: NDArray[Any]) -> list[NDArray[Any]]:
    return [label_issues(torch.from_numpy(features), torch.from_numpy(labels)).order.numpy()]


def cleanlab_with(classifier: Any) -> Rankings:
    """By each of its scores."""
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import cross_val_predict

    def result(features: NDArray[Any], labels: NDArray[Any]) -> list[NDArray[Any]]:
        likely = cross_val_predict(classifier, features, labels, cv=5, method="predict_proba")
        scores = [get_label_quality_scores(labels, likely, method=name) for name in SCORES]
        return [each.argsort() for each in scores]

    return result


def rankings(names: list[str]) -> dict[str, Rankings]:
    result: dict[str, Rankings] = {"unseen": ours}
    if importlib.util.find_spec("cleanlab") is not None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.neighbors import KNeighborsClassifier

        near = KNeighborsClassifier(10, metric="cosine", weights="distance")
        result["cleanlab, 10 neighbours"] = cleanlab_with(near)
        result["cleanlab, logistic regression"] = cleanlab_with(LogisticRegression(max_iter=200))
    return {name: each for name, each in result.items() if not names or name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, help="of `unseen data features`")
    parser.add_argument("--fraction", type=float, default=0.1, help="of labels that are changed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="*", default=[], help="rankings by name")
    words = parser.parse_args()
    held = Arrays(words.features)
    tested = held.official_test_classes if held.official_test_classes is not None else []
    train = np.flatnonzero(~np.isin(held.labels, tested))
    x, y = np.asarray(held.features[train], dtype=np.float32), held.labels[train]
    given = UserFeatures(x, Described(y, list(held.label_names), None, Annotations()))
    first = round(0.1 * len(y))
    print(
        f"{len(y):,} items of {len(np.unique(y))} classes, {words.fraction:.0%} of labels changed"
    )
    shares: dict[str, list[float]] = {}
    for seed in words.seeds:
        labels = with_noise(
            given, np.arange(len(y)), LabelNoiseSettings(fraction=words.fraction), seed
        )
        wrong = labels != y
        for name, make in rankings(words.only).items():
            began = time.process_time()
            result = max(
                float(wrong[items[:first]].sum() / wrong.sum()) for items in make(x, labels)
            )
            shares.setdefault(name, []).append(result)
            seconds = time.process_time() - began
            print(f"  seed {seed}  {name:30} {100 * result:5.1f} %  {seconds:6.1f} s", flush=True)
    for name, values in shares.items():
        print(f"  mean    {name:30} {100 * np.mean(values):5.1f} %")


if __name__ == "__main__":
    main()

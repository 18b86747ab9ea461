"""A run on an open set of its test classes: half of them are not in the gallery, or those that come
later than it. Kept as open_set.json in the run's folder.

    open_set_of(context, folder, watch).scores["unknown_auroc"]

Thresholds are those of validation classes: the calibrated one (`unseen calibrate`; where there is
none, found here in the same way and not kept), and the one at which an open set made of validation
classes has the highest geometric mean of BAKS and BAUS. Unknown queries are grouped as validation
classes come out best. The reading is in the manifest.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from unseen.contracts import IntArray, annotations_of
from unseen.evaluation.calibrate import calibrate
from unseen.evaluation.open_set import (
    MOST_GROUPED,
    OpenSet,
    best_cut,
    best_threshold,
    by_time,
    draw_unknown,
    nearest_answers,
    open_set,
    without,
)
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.experiment.calibration import read_calibration
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.trained import Trained
from unseen.names import known
from unseen.relating import check_by_class
from unseen.statistics import MIN_CLASSES
from unseen.training.run_folder import RunFolder

FILE = "open_set.json"
CALIBRATED, BALANCED = "calibrated", "balanced"
EMBEDDINGS = "embeddings/test.npz"


def open_set_of(
    context: RunContext, folder: RunFolder, watch: Watch, time: str | None = None
) -> OpenSet:
    """Judges a trained run and keeps what was found. time: a label column; the earlier half of the
    test items is then the gallery, and the later half asks."""
    config, test = context.config, context.split.test
    check_by_class("an open set", context.relevance.kind)
    trained = Trained.open(folder.path)
    task = context.retrieval_task(test)
    labels = torch.from_numpy(context.dataset.labels[test])
    unknown, query, gallery = None, task.query, task.gallery
    if time is None:
        unknown = draw_unknown(labels, config.seed)
        how = f"{len(unknown)} of {len(labels.unique())} test classes are not in the gallery"
    else:
        query, gallery = by_time(_times(context, time, test))
        how = f"by {time}: the earlier {len(gallery):,} answer, the later {len(query):,} ask"
    chosen = _chosen(context, trained, watch)
    folder.note_test_read("open set" if time is None else f"open set by {time}", config.hash())
    with computing(context):
        found = open_set(
            _embeddings(context, folder, trained, watch),
            labels,
            unknown=unknown,
            query=query,
            gallery=gallery,
            groups=task.groups,
            thresholds=chosen.thresholds,
            cut=chosen.cut,
            how=how,
            normalise=config.normalise,
            seed=config.seed,
            progress=watch.of("asking the open set"),
        )
    folder.write_json(FILE, found)
    return found


def read_open_set(folder: RunFolder) -> OpenSet | None:
    """None before it was asked for."""
    return folder.read(FILE, OpenSet) if folder.has(FILE) else None


def _embeddings(
    context: RunContext, folder: RunFolder, trained: Trained, watch: Watch
) -> Tensor:  # [n, D]
    """Those of the final evaluation, where there was one."""
    if folder.holds(EMBEDDINGS) and folder.is_finished:
        with np.load(folder.checked(EMBEDDINGS)) as arrays:
            return torch.from_numpy(arrays["embeddings"])
    progress = watch.of("embedding test classes")
    return context.embed(trained.network, trained.transform, context.split.test, progress)


@dataclass(frozen=True)
class _Chosen:
    """On validation classes: thresholds by name, and where grouping ends."""

    thresholds: dict[str, float] = field(default_factory=dict)
    cut: float | None = None


def _chosen(context: RunContext, trained: Trained, watch: Watch) -> _Chosen:
    """Nothing where the validation classes are too few."""
    items = context.split.validation
    labels = torch.from_numpy(context.dataset.labels[items])
    classes = len(labels.unique())
    if classes < MIN_CLASSES or classes == len(items):
        watch.warn(
            f"no threshold: {MIN_CLASSES} validation classes are needed, the run kept {classes}; "
            "train with a larger validation_share, or on more classes"
        )
        return _Chosen()
    with computing(context):
        progress = watch.of("embedding validation classes")
        rows = context.embed(trained.network, trained.transform, items, progress)
        how, seed = context.config.normalise, context.config.seed
        kept = read_calibration(trained) or calibrate(rows, labels, normalise=how, seed=seed)
        gallery = without(labels, None, draw_unknown(labels, seed))
        answers = nearest_answers(rows, RetrievalTask(labels, None, gallery), how)
        thresholds = {CALIBRATED: kept.threshold, BALANCED: best_threshold(answers)}
        some = torch.linspace(0, len(items) - 1, min(len(items), MOST_GROUPED)).long()
        return _Chosen(thresholds, best_cut(rows[some], labels[some], how))


def _times(context: RunContext, column: str, items: IntArray) -> IntArray:
    """Rising with time: numbers in their order, texts (2024-05-31) in that of the alphabet."""
    labels = annotations_of(context.dataset).labels
    if not labels:
        raise ValueError(f"the data have no column {column!r}: a table or .npz file can have one")
    return labels[known(column, list(labels), "label column")][items]

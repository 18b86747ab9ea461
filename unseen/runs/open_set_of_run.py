"""The open-set evaluation of a run, in open_set.json of its folder."""

import torch
from torch import Tensor

from unseen.config.build_relevance import check_by_class
from unseen.core import read_limits
from unseen.core.contracts import IntArray, annotations_of
from unseen.core.names import known
from unseen.core.statistics import MIN_CLASSES
from unseen.evaluation.calibration import calibrate
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
from unseen.runs.calibrate_run import read_calibration
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.trained_run import Trained
from unseen.training.run_folder import RunFolder

FILE = "open_set.json"
CALIBRATED, BALANCED = "calibrated", "balanced"
EMBEDDINGS = "embeddings/test.npz"


def open_set_of(
    context: RunContext, folder: RunFolder, callbacks: Callbacks, time: str | None = None
) -> OpenSet:
    """Evaluates a trained run and keeps what was found. time: a label column; the earlier half of
    the test items is then the gallery, and the later half asks.

    Half of the test classes are not in the gallery, or (`time`) those that come later.
    Thresholds come from validation classes: the calibrated one (`unseen calibrate`, or found
    here in the same way and not stored), and the one at which an open set made of validation
    classes has the highest geometric mean of BAKS and BAUS. Unknown queries are grouped as
    validation classes come out best.

    Example:
        open_set_of(context, folder, callbacks).scores["unknown_auroc"]
    """
    config, test = context.config, context.split.test
    check_by_class("an open set", context.relevance.kind)
    trained = Trained.open(folder.path)
    task = context.retrieval_task(test)
    labels = torch.from_numpy(context.dataset.labels[test])
    unknown, query, gallery = None, task.query, task.gallery
    if time is None:
        unknown = draw_unknown(labels, config.training.seed)
        how = f"{len(unknown)} of {len(labels.unique())} test classes are not in the gallery"
    else:
        query, gallery = by_time(_times(context, time, test))
        how = f"by {time}: the earlier {len(gallery):,} answer, the later {len(query):,} ask"
    thresholds, cut = _chosen(context, trained, callbacks)
    folder.note_test_read("open set" if time is None else f"open set by {time}", config.hash())
    with computing(context):
        result = open_set(
            _embeddings(context, folder, trained, callbacks),
            labels,
            unknown=unknown,
            query=query,
            gallery=gallery,
            groups=task.groups,
            thresholds=thresholds,
            cut=cut,
            how=how,
            normalize=config.evaluation.normalize,
            seed=config.training.seed,
            progress=callbacks.of("asking the open set"),
        )
    folder.write_json(FILE, result)
    return result


def read_open_set(folder: RunFolder) -> OpenSet | None:
    """None before it was asked for."""
    return folder.read(FILE, OpenSet) if folder.has(FILE) else None


def _embeddings(
    context: RunContext, folder: RunFolder, trained: Trained, callbacks: Callbacks
) -> Tensor:  # [n, D]
    """Those of the final evaluation, where there was one."""
    if folder.holds(EMBEDDINGS) and folder.is_finished:
        with read_limits.load(folder.checked(EMBEDDINGS)) as arrays:
            return torch.from_numpy(arrays["embeddings"])
    progress = callbacks.of("embedding test classes")
    return context.embed(trained.network, trained.transform, context.split.test, progress)


def _chosen(
    context: RunContext, trained: Trained, callbacks: Callbacks
) -> tuple[dict[str, float], float | None]:
    """Thresholds by name and where grouping ends, on validation classes; nothing where those are
    too few."""
    items = context.split.validation
    labels = torch.from_numpy(context.dataset.labels[items])
    classes = len(labels.unique())
    if classes < MIN_CLASSES or classes == len(items):
        callbacks.warn(
            f"no threshold: {MIN_CLASSES} validation classes are needed, the run kept {classes}; "
            "train with a larger validation_fraction, or on more classes"
        )
        return {}, None
    with computing(context):
        progress = callbacks.of("embedding validation classes")
        rows = context.embed(trained.network, trained.transform, items, progress)
        how, seed = context.config.evaluation.normalize, context.config.training.seed
        calibration = read_calibration(trained) or calibrate(rows, labels, normalize=how, seed=seed)
        gallery = without(labels, None, draw_unknown(labels, seed))
        answers = nearest_answers(rows, RetrievalTask(labels, None, gallery), how)
        thresholds = {CALIBRATED: calibration.threshold, BALANCED: best_threshold(answers)}
        some = torch.linspace(0, len(items) - 1, min(len(items), MOST_GROUPED)).long()
        return thresholds, best_cut(rows[some], labels[some], how)


def _times(context: RunContext, column: str, items: IntArray) -> IntArray:
    """Rising with time: numbers in their order, texts (2024-05-31) in that of the alphabet."""
    labels = annotations_of(context.dataset).labels
    if not labels:
        raise ValueError(f"the data have no column {column!r}: a table or .npz file can have one")
    return labels[known(column, list(labels), "label column")][items]

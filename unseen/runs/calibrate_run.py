"""A calibration fitted on the validation classes of a run, in calibration.json of its folder."""

import numpy as np

from unseen.core.statistics import MIN_CLASSES
from unseen.evaluation.calibration import Calibration, calibrate
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.select_epoch import more_validation_classes
from unseen.runs.trained_run import Trained
from unseen.training.run_folder import RunFolder

NAME = "calibration.json"


def calibrate_run(
    context: RunContext,
    trained: Trained,
    callbacks: Callbacks,
    fmr: float = 1e-3,
    confidence: float = 0.95,
) -> Calibration:
    """Embeds the validation classes, fits, writes.

    The validation classes also chose the epoch (and the layer), so they are not quite unseen;
    the test classes stay unread.
    """
    items = context.split.validation
    classes = len(np.unique(context.dataset.labels[items]))
    if classes < MIN_CLASSES:
        raise ValueError(
            f"calibration needs at least {MIN_CLASSES} validation classes, the run has {classes}: "
            f"train again. {more_validation_classes(context)}"
        )
    refit = trained.folder.manifest().refit  # None where it was skipped or given up
    if refit is not None and refit["epochs"]:
        callbacks.warn(
            "refit trained on the validation classes too: on new classes wrong pairs are more "
            "similar, and right ones less, than what is measured here"
        )
    with computing(context):
        embeddings = context.embed(
            trained.network, trained.transform, items, callbacks.of("embedding validation classes")
        )
        calibration = calibrate(
            embeddings,
            context.labels_of(items),
            fmr=fmr,
            confidence=confidence,
            normalize=context.config.evaluation.normalize,
            seed=context.config.training.seed,
            progress=callbacks.of("comparing pairs"),
        )
    content = {"model": trained.fingerprint, "on": "validation classes"} | calibration.to_dict()
    trained.folder.write_json(NAME, content)
    return calibration


def why_impossible(run: RunFolder) -> str | None:
    """Why a run cannot be calibrated; None where it can."""
    classes = run.manifest().data.split.validation_classes
    if classes is None or classes >= MIN_CLASSES:
        return None
    return (
        f"the run kept {classes} classes aside, `unseen calibrate` needs {MIN_CLASSES}: train with "
        "a larger validation_fraction, or on more classes"
    )


def read_calibration(trained: Trained) -> Calibration | None:
    """None before `unseen calibrate`, or when the weights have changed since."""
    if not trained.folder.has(NAME):
        return None
    stored = trained.folder.read_json(NAME)
    if stored.pop("model") != trained.fingerprint:
        return None
    stored.pop("on")
    return Calibration.from_dict(stored)

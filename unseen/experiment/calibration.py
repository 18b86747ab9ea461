"""The calibration of a run: made on its validation classes, kept in its folder as calibration.json.

The validation classes also chose the epoch (and the layer), so they are not quite unseen; the
test classes stay unread.
"""

import numpy as np

from unseen.evaluation.calibrate import Calibration, calibrate
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.selection import more_validation_classes
from unseen.experiment.trained import Trained
from unseen.statistics import MIN_CLASSES
from unseen.training.run_folder import RunFolder

NAME = "calibration.json"


def calibrate_run(
    context: RunContext,
    trained: Trained,
    watch: Watch,
    fmr: float = 1e-3,
    confidence: float = 0.95,
) -> Calibration:
    """Embeds the validation classes, fits, writes."""
    items = context.split.validation
    classes = len(np.unique(context.dataset.labels[items]))
    if classes < MIN_CLASSES:
        raise ValueError(
            f"calibration needs at least {MIN_CLASSES} validation classes, the run has {classes}: "
            f"train again. {more_validation_classes(context)}"
        )
    if context.config.refit:
        watch.warn(
            "refit has trained on the validation classes too: on new classes wrong pairs are more "
            "similar, and right ones less, than what is measured here"
        )
    with computing(context):
        embeddings = context.embed(
            trained.network, trained.transform, items, watch.of("embedding validation classes")
        )
        made = calibrate(
            embeddings,
            context.labels_of(items),
            fmr=fmr,
            confidence=confidence,
            normalise=context.config.normalise,
            seed=context.config.seed,
            progress=watch.of("comparing pairs"),
        )
    message = {"model": trained.fingerprint, "on": "validation classes"} | made.to_dict()
    trained.folder.write_json(NAME, message)
    return made


def why_impossible(run: RunFolder) -> str | None:
    """Why a run cannot be calibrated; None where it can."""
    classes = run.manifest().data.split.validation_classes
    if classes is None or classes >= MIN_CLASSES:
        return None
    return (
        f"the run kept {classes} classes aside, `unseen calibrate` needs {MIN_CLASSES}: train with "
        "a larger validation_share, or on more classes"
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

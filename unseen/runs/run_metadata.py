"""What a run is about, in counts and fingerprints: for manifest, result and terminal."""

from typing import Any

import numpy as np

from unseen.config.resolve import NORMALISATION
from unseen.data.base import INCOMPLETE
from unseen.runs.prepare import RunContext
from unseen.runs.run_items import split_hash
from unseen.training.manifest import Data, DataMetadata, SplitMetadata


def describe(context: RunContext) -> Data:
    """Data and split in counts and fingerprints; no paths, so that results can be compared."""
    dataset, split = context.dataset, context.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    counts: dict[str, Any] = {f"{name}_items": len(items) for name, items in parts.items()}
    for name, items in parts.items():
        counts[f"{name}_classes"] = len(np.unique(dataset.labels[items]))
    for name, request in (("query", split.query), ("gallery", split.gallery)):
        if request is not None:
            counts[f"{name}_items"] = len(request)
    if context.config.data.label_noise is not None:
        changed = context.training_labels[split.train] != dataset.labels[split.train]
        counts["changed_labels"] = int(changed.sum())
    counts["hash"] = split_hash(split)
    if context.shift is not None and context.config.evaluation.protocol.shift is not None:
        counts |= {
            "shift": context.shift,
            "shift_step": context.config.evaluation.protocol.shift.step,
        }
    described = dataset.describe()
    metadata: dict[str, Any] = {
        key: value
        for key, value in described.items()
        if isinstance(value, int) or key == INCOMPLETE
    }
    metadata |= context.copies.counts() if context.copies else {}
    normalisation = (reason.why for reason in context.reasons if reason.key == NORMALISATION)
    metadata["normalisation"] = next(normalisation, None)
    known = DataMetadata(**metadata, name=dataset.name, fingerprint=dataset.fingerprint())
    return Data(known, SplitMetadata(**counts))

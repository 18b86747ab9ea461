"""What a run is about, in counts and fingerprints: for manifest, result and terminal."""

from typing import Any

import numpy as np

from unseen.data.base import INCOMPLETE
from unseen.experiment.items import split_hash
from unseen.experiment.run_context import RunContext
from unseen.training.manifest import Data, DataFacts, SplitFacts


def describe(context: RunContext) -> Data:
    """Data and split in counts and fingerprints; no paths, so that results can be compared."""
    dataset, split = context.dataset, context.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    counts: dict[str, Any] = {f"{name}_items": len(items) for name, items in parts.items()}
    for name, items in parts.items():
        counts[f"{name}_classes"] = len(np.unique(dataset.labels[items]))
    for name, asked in (("query", split.query), ("gallery", split.gallery)):
        if asked is not None:
            counts[f"{name}_items"] = len(asked)
    if context.config.label_noise is not None:
        changed = context.training_labels[split.train] != dataset.labels[split.train]
        counts["changed_labels"] = int(changed.sum())
    counts["hash"] = split_hash(split)
    if context.shift is not None and context.config.shift is not None:
        counts |= {"shift": context.shift, "shift_step": context.config.shift.step}
    said = dataset.describe()
    facts: dict[str, Any] = {key: value for key, value in said.items() if isinstance(value, int)}
    facts |= {INCOMPLETE: said[INCOMPLETE]} if INCOMPLETE in said else {}
    facts |= context.copies.counts() if context.copies else {}
    known = DataFacts(**facts, name=dataset.name, fingerprint=dataset.fingerprint())
    return Data(known, SplitFacts(**counts))

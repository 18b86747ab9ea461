"""`refit = true`: once the length of training is chosen on validation classes, train once more on
all training classes for that long; only then are the test classes read.

The second training starts anew, with the same learning rates, in `refit/` of the run's folder, and
goes on after a stop like the first. Then its weights are the run's; those that were selected stay
in `selected/`, and the result has the scores of both. A "best" descriptor is chosen before, while
the validation classes are still unseen.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from unseen.experiment.fit import Fit
from unseen.experiment.layers import BEST, choose_descriptor
from unseen.experiment.run_context import RunContext, Watch
from unseen.training.events import Refitted
from unseen.training.journal import append
from unseen.training.run_folder import COPIES, RunFolder

SELECTED = "selected"  # where the weights from before the refit are kept


def refit(
    context: RunContext, folder: RunFolder, selection: dict[str, Any], watch: Watch
) -> dict[str, Any]:
    """Trains again, or goes on with it; returns the selection, which tells of it."""
    whole, second = all_training_classes(context), RunFolder(folder.file("refit"), folder.processes)
    if not second.has("selection.json"):
        if context.config.descriptor == BEST:
            selection = choose_descriptor(context, folder, selection, watch)
        classes = len(np.unique(context.dataset.labels[whole.split.train]))
        told = {
            "epochs": selection["epoch"] + 1,
            "train_classes": classes,
            "train_items": len(whole.split.train),
        }
        folder.note_refit(told)
        second.write_json("selection.json", selection | {"refit": told})
    selection = second.read_json("selection.json")
    fit = Fit(whole, second, watch, epochs=selection["refit"]["epochs"])
    event = Refitted(**selection["refit"], steps=len(fit.sampler))
    if folder.writes:
        append(folder.file("journal.jsonl"), event)  # the first training has cut what came after it
    watch.tell(event)
    fit.run()
    for name in ("weights.safetensors", "objective.safetensors"):
        if not folder.has(f"{SELECTED}/{name}"):
            selected = f"{COPIES}/{name}" if folder.has(f"{COPIES}/{name}") else name
            folder.write_tensors(f"{SELECTED}/{name}", folder.read_tensors(selected))
        folder.write_tensors(name, second.read_tensors(name))
    folder.write_json("selection.json", selection)
    return choose_descriptor(whole, folder, selection, watch)


def all_training_classes(context: RunContext) -> RunContext:
    """The same setting without validation classes: they are trained on."""
    split = context.split
    train = np.sort(np.concatenate([split.train, split.validation]))
    return replace(context, split=replace(split, train=train, validation=split.validation[:0]))

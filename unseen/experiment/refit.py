"""`refit = true`: once the length of training is chosen on validation classes, train once more on
all training classes for that long; only then are the test classes read.

The second training starts anew, with the same learning rates, in `refit/` of the run's folder, and
goes on after a stop like the first. Then its weights are the run's; those that were selected stay
in `selected/`, and the result has the scores of both. A "best" descriptor is chosen before, while
the validation classes are still unseen. Its length is no matter of minutes: where they do not last
for all of it, it is given up and the selected weights stay the run's.
"""

from dataclasses import asdict, replace

import numpy as np

from unseen.experiment.clock import AFTER, Clock, Length
from unseen.experiment.fit import Fit
from unseen.experiment.ladder import (
    FILES,
    have_same_objective,
    kept_context,
    kept_tensors,
    rung_folder,
    starting_from,
    tell,
)
from unseen.experiment.layers import BEST, choose_descriptor
from unseen.experiment.run_context import RunContext, Watch
from unseen.rungs import FIRST, rung_config
from unseen.training.events import Refitted
from unseen.training.run_folder import RunFolder
from unseen.training.selection import FILE as SELECTION
from unseen.training.selection import (
    ChainLink,
    Refit,
    Selection,
    read_selection,
    write_selection,
)

SELECTED = "selected"  # where the weights from before the refit are kept


def refit(
    context: RunContext, folder: RunFolder, selection: Selection, watch: Watch, clock: Clock
) -> Selection:
    """Trains again, or goes on with it; returns the selection, which tells of it."""
    whole, second = all_training_classes(context), RunFolder(folder.file("refit"), folder.processes)
    selected = selection
    if not second.has(SELECTION):
        if context.config.descriptor == BEST:
            kept = kept_context(context, selection)
            selection, _ = choose_descriptor(kept, folder, selection, watch)
        classes = len(np.unique(context.dataset.labels[whole.split.train]))
        facts = Refit(selection.epoch + 1, classes, len(whole.split.train))
        write_selection(second, replace(selection, refit=facts))
    selection = read_selection(second)
    last = _trained_again(whole, folder, second, selection, watch, clock)
    if last is None:
        return selected
    assert selection.refit is not None, "written before it begins"
    folder.note_refit(asdict(selection.refit))
    for name in FILES:
        if not folder.has(f"{SELECTED}/{name}"):
            kept_rung = rung_folder(folder, _chain(selection)[-1].name)
            folder.write_tensors(f"{SELECTED}/{name}", kept_tensors(kept_rung, name))
        folder.write_tensors(name, last.read_tensors(name))
    write_selection(folder, selection)
    return choose_descriptor(kept_context(whole, selection), folder, selection, watch)[0]


def _trained_again(
    whole: RunContext,
    folder: RunFolder,
    second: RunFolder,
    selection: Selection,
    watch: Watch,
    clock: Clock,
) -> RunFolder | None:
    """Every rung that led to the kept one, each from the one before; returns the last's folder, or
    None where the minutes did not last."""
    start, before = None, whole.config
    after = refit_minutes(whole, selection)[1]
    assert selection.refit is not None, "written before it begins"
    facts = selection.refit
    for link in _chain(selection):
        context = replace(whole, config=rung_config(whole.config, link.name))
        place = rung_folder(second, link.name)
        same = have_same_objective(before, context.config)
        begins = None if start is None else starting_from(start, same)
        length = Length(clock, f"refit ({link.name})", after, again=True, at_once=True)
        fit = Fit(context, place, watch, link.epochs, begins, length)
        fit.follow_schedule(clock.epochs_of(link.name, context.config.epochs))
        counts = (link.epochs, facts.train_classes, facts.train_items)
        tell(folder, watch, Refitted(*counts, steps=len(fit.sampler)))
        fit.run()
        if fit.epochs < link.epochs:
            return None
        start, before = place, context.config
    assert start is not None, "a chain has a rung at least"
    return start


def _chain(selection: Selection) -> list[ChainLink]:
    """The trainings that led to the kept weights, with their epochs."""
    if selection.ladder is None:
        return [ChainLink(FIRST, selection.epoch + 1)]
    return selection.ladder.chain


def refit_minutes(context: RunContext, selection: Selection) -> tuple[float, float]:
    """What training again was planned to take, and what is to be left after it."""
    names = [link.name for link in _chain(selection)]
    rungs = [rung for rung in context.config.ladder if rung.name in names]
    after = AFTER * (context.config.minutes or 0.0)
    if rungs and rungs[-1].minutes is not None:
        kept = rungs[-1]
        after = kept.minutes_after if kept.minutes_judging is None else kept.minutes_judging
    deep = [  # a head has its descriptors already
        rung for rung in rungs if rung_config(context.config, rung.name).depth != FIRST
    ]
    split = context.split
    more = (len(split.train) + len(split.validation)) / len(split.train)
    return more * sum(rung.minutes or 0.0 for rung in deep), after


def all_training_classes(context: RunContext) -> RunContext:
    """The same setting without validation classes: they are trained on."""
    split = context.split
    train = np.sort(np.concatenate([split.train, split.validation]))
    return replace(context, split=replace(split, train=train, validation=split.validation[:0]))

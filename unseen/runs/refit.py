"""`refit = true`: a second training on training and validation classes together."""

from dataclasses import asdict, replace

import numpy as np

from unseen.config.stages import FIRST, stage_config
from unseen.runs.evaluate_layers import BEST, choose_descriptor
from unseen.runs.prepare import Callbacks, RunContext
from unseen.runs.run_networks import selected_context, stage_folder
from unseen.runs.run_stages import (
    have_same_objective,
    log_stage,
    starting_from,
)
from unseen.runs.time_spent import AFTER, REFIT, Length, TimeBudget
from unseen.runs.training_loop import TrainingLoop
from unseen.training.events import Refitted
from unseen.training.run_folder import SELECTED, RunFolder
from unseen.training.selected_weights import (
    BEFORE_REFIT,
    ChainLink,
    Refit,
    Selection,
    read_selection,
    write_selection,
)
from unseen.training.selected_weights import FILE as SELECTION


def refit(
    context: RunContext,
    folder: RunFolder,
    selection: Selection,
    callbacks: Callbacks,
    time_budget: TimeBudget,
) -> Selection:
    """Trains again, or goes on with it; returns the selection, which tells of it.

    The length was selected on validation classes before. The second training starts anew, with
    the same learning rates, in `refit/` of the run folder, and resumes like the first. Its
    weights become those of the run; the selected ones stay in `selected/`, and the result has
    the scores of both. A "best" descriptor is chosen before, while the validation classes are
    still unseen. Where the time budget does not last for it, it is skipped, or discarded.
    """
    if not time_budget.allows(REFIT, *refit_minutes(context, selection)):
        return selection
    whole, second = all_training_classes(context), RunFolder(folder.file("refit"), folder.processes)
    selected = selection
    if not second.has(SELECTION):
        if context.config.evaluation.descriptor == BEST:
            best = selected_context(context, selection)
            selection, _ = choose_descriptor(best, folder, selection, callbacks)
        classes = len(np.unique(context.dataset.labels[whole.split.train]))
        metadata = Refit(selection.epoch + 1, classes, len(whole.split.train))
        write_selection(second, replace(selection, refit=metadata))
    selection = read_selection(second)
    last = _trained_again(whole, folder, second, selection, callbacks, time_budget)
    if last is None:
        return selected
    assert selection.refit is not None, "written before it begins"
    folder.note_refit(asdict(selection.refit))
    for name in SELECTED:
        if not folder.has(f"{BEFORE_REFIT}/{name}"):
            folder.write_tensors(f"{BEFORE_REFIT}/{name}", folder.read_tensors(name))
        folder.write_tensors(name, last.read_tensors(name))
    write_selection(folder, selection)
    return choose_descriptor(selected_context(whole, selection), folder, selection, callbacks)[0]


def _trained_again(
    whole: RunContext,
    folder: RunFolder,
    second: RunFolder,
    selection: Selection,
    callbacks: Callbacks,
    time_budget: TimeBudget,
) -> RunFolder | None:
    """Every stage that led to the kept one, each from the one before; returns the last's folder, or
    None where the minutes did not last."""
    start, before = None, whole.config
    after = refit_minutes(whole, selection)[1]
    assert selection.refit is not None, "written before it begins"
    metadata = selection.refit
    for link in _chain(selection):
        context = replace(whole, config=stage_config(whole.config, link.name))
        place = stage_folder(second, link.name)
        same = have_same_objective(before, context.config)
        begins = None if start is None else starting_from(start, same)
        length = Length(time_budget, f"{REFIT} ({link.name})", after, again=True, at_once=True)
        fit = TrainingLoop(context, place, callbacks, link.epochs, begins, length)
        fit.follow_schedule(time_budget.epochs_of(link.name, context.config.training.epochs))
        counts = (link.epochs, metadata.train_classes, metadata.train_items)
        log_stage(folder, callbacks, Refitted(*counts, steps=len(fit.sampler)))
        fit.run()
        if fit.epochs < link.epochs:
            return None
        start, before = place, context.config
    assert start is not None, "a chain has a stage at least"
    return start


def _chain(selection: Selection) -> list[ChainLink]:
    """The trainings that led to the kept weights, with their epochs."""
    if selection.stages is None:
        return [ChainLink(FIRST, selection.epoch + 1)]
    return selection.stages.chain


def refit_minutes(context: RunContext, selection: Selection) -> tuple[float, float]:
    """What training again was planned to take, and what is to be left after it."""
    names = [link.name for link in _chain(selection)]
    stages = [stage for stage in context.config.training.stages if stage.name in names]
    after = AFTER * (context.config.training.time_budget or 0.0)
    if stages and stages[-1].minutes is not None:
        after, evaluating = stages[-1].minutes_after, stages[-1].minutes_evaluating
        after = after if evaluating is None else evaluating
    deep = [  # a head has its descriptors already
        stage
        for stage in stages
        if stage_config(context.config, stage.name).training.depth != FIRST
    ]
    split = context.split
    more = (len(split.train) + len(split.validation)) / len(split.train)
    return more * sum(stage.minutes or 0.0 for stage in deep), after


def all_training_classes(context: RunContext) -> RunContext:
    """The same setting without validation classes: they are trained on."""
    split = context.split
    train = np.sort(np.concatenate([split.train, split.validation]))
    return replace(context, split=replace(split, train=train, validation=split.validation[:0]))

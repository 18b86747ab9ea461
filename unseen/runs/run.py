"""A run from its config to its result: prepare, train or resume, evaluate on the test classes."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from unseen.config import build, find_data
from unseen.config.schema import Config, ResolvedConfig
from unseen.config.stages import FIRST, stage_config
from unseen.core import custom_components, registry
from unseen.core.names import by_front_end
from unseen.runs.claim_folder import as_stored, claimed, is_done
from unseen.runs.evaluate_run import FINAL, evaluate_run
from unseen.runs.prepare import Callbacks, RunContext, Show, computing, prepare
from unseen.runs.run_items import describe, items_of, refuse_other_items
from unseen.runs.run_networks import selected_context
from unseen.runs.time_spent import AFTER, Length, TimeBudget
from unseen.runs.training_loop import TrainingLoop
from unseen.training.distributed import Processes, joined
from unseen.training.result import Result, read_result
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Selection

EVALUATED, TRAINED = "train and evaluate", "train"


@dataclass(frozen=True)
class FinishedRun:
    """What `run_config` returns: the folder, its context and the content of result.json."""

    path: Path
    context: RunContext
    result: Result
    was_finished: bool  # before the call


def run_config(
    config: Config,
    out: Path | None,
    command: str,
    show: Show | None = None,
    accept_changes: bool = False,
) -> FinishedRun:
    """Resolves a config, claims a folder, trains or resumes, and evaluates; reads a finished run.

    The command line and `unseen.fit` call it. One process at a time trains in a folder; another
    one learns from the error who does. Of several processes (torchrun) the first writes.

    Args:
        config: May say "auto".
        out: The folder; None: a name in runs/.
        command: How the manifest names the caller.
        show: Callbacks of both phases; None: nothing is shown.
        accept_changes: Starts a new run where the data have changed since a run of this name.
    """
    from unseen.runs.speed import speeds_of  # noqa: PLC0415 - a study's runs are not planned
    from unseen.runs.time_budget import planned  # noqa: PLC0415 - likewise

    show = show or Show()
    with joined(config.training.machine.device) as processes, ExitStack() as locks:
        with show.preparing(processes) as callbacks:
            measure = partial(speeds_of, callbacks=callbacks)
            context = planned(prepare(config, callbacks, processes=processes), measure)
        path = processes.agreed(lambda: claimed(context, out, locks, accept_changes))
        folder = RunFolder(path, processes)
        context = as_stored(context, folder)
        if is_done(folder):
            return FinishedRun(path, context, read_result(folder), was_finished=True)
        with show.training(context, path) as callbacks:
            result = _locked(context, path, command, callbacks)
    return FinishedRun(path, context, result, was_finished=False)


def train_and_evaluate(
    context: RunContext,
    out: Path,
    command: str,
    callbacks: Callbacks | None = None,
) -> Result:
    """Trains or resumes, then evaluates; returns what stands in result.json."""
    folder = RunFolder(out, context.processes)
    context = as_stored(context, folder)
    with folder.lock(context.config.hash()):
        return _locked(context, out, command, callbacks or Callbacks())


def _locked(context: RunContext, out: Path, command: str, callbacks: Callbacks) -> Result:
    """In a folder that this process alone has."""
    with _among(context, out, EVALUATED) as shared:
        return _train_and_evaluate(shared, out, command, callbacks)


def _among(context: RunContext, out: Path, purpose: str) -> AbstractContextManager[RunContext]:
    """The context among `cpu_processes` processes, where there are to be several."""
    if context.config.training.machine.cpu_processes == 1 or context.processes.are_several:
        return nullcontext(context)
    from unseen.runs.cpu_processes import shared  # noqa: PLC0415 - where there are to be several

    return shared(context, out, purpose)


def train(
    context: RunContext, out: Path, command: str, callbacks: Callbacks | None = None
) -> Selection:
    """Trains, or goes on training; returns what was selected. The test classes are not read."""
    folder = RunFolder(out, context.processes)
    context = as_stored(context, folder)
    with folder.lock(context.config.hash()), _among(context, out, TRAINED) as context:
        return _train(context, RunFolder(out, context.processes), command, callbacks or Callbacks())


def join_run() -> None:
    """What the other processes of a run do (`runs/cpu_processes.py`); the first writes and logs."""
    from unseen.runs.cpu_processes import taken  # noqa: PLC0415 - in a process that was started

    with taken(Path(sys.argv[1]), int(sys.argv[2])) as (context, out, purpose):
        if purpose == EVALUATED:
            _train_and_evaluate(context, out, "", Callbacks())
        else:
            _train(context, RunFolder(out, context.processes), "", Callbacks())


def _train_and_evaluate(
    context: RunContext, out: Path, command: str, callbacks: Callbacks
) -> Result:
    folder = RunFolder(out, context.processes)
    selection = _train(context, folder, command, callbacks)
    selected = selected_context(context, selection)
    result = evaluate_run(selected, folder, selection, FINAL, callbacks)
    if (config := context.config).evaluation.shots or config.evaluation.open_set:
        _evaluate_extra(selected, folder, callbacks)
    folder.note_end()
    return result


def _evaluate_extra(context: RunContext, folder: RunFolder, callbacks: Callbacks) -> None:
    """Few shots and the open set: each a file of the run's folder, and noted in its manifest."""
    from unseen.runs.few_shots import few_shots  # noqa: PLC0415 - few ask for it
    from unseen.runs.open_set_of_run import open_set_of  # noqa: PLC0415 - likewise

    if folder.writes:
        alone, place = replace(context, processes=Processes()), RunFolder(folder.path)
        for shots in context.config.evaluation.shots:
            few_shots(alone, place, shots, callbacks)
        if context.config.evaluation.open_set:
            open_set_of(alone, place, callbacks)
    context.processes.wait()


def _train(context: RunContext, folder: RunFolder, command: str, callbacks: Callbacks) -> Selection:
    """A run that began with other items is not touched."""
    if folder.is_started:
        refuse_other_items(folder, context.dataset, context.split)
        refuse_other_sources(folder, context.config)
        folder.note_resumed()
    time_budget = TimeBudget(
        folder, callbacks, context.config.training.time_budget, context.began, context.now
    )
    callbacks = time_budget.with_saves(callbacks)
    is_planned = any(stage.minutes is not None for stage in context.config.training.stages)
    is_short = time_budget.minutes is not None and not is_planned
    length = Length(time_budget, FIRST, AFTER * (time_budget.minutes or 0.0)) if is_short else None
    with computing(context):  # a value that a method refuses stops here, before anything is written
        fit = TrainingLoop(context, folder, callbacks, length=length)
    if not folder.is_started:
        begin(context, folder, command)
    with computing(context):
        fit.run()
        selection = fit.selection
        if context.config.training.stages:
            from unseen.runs.run_stages import run_stages  # noqa: PLC0415 - few runs have several

            selection = run_stages(fit, selection, time_budget)
        if context.config.training.validation.refit:
            from unseen.runs.refit import refit  # noqa: PLC0415 - few runs train again

            selection = refit(context, folder, selection, callbacks, time_budget)
    return selection


def begin(context: RunContext, folder: RunFolder, command: str) -> None:
    """Writes down what the run is about; with its config a run has begun."""
    items = items_of(context.dataset, context.split).write(folder)
    place = find_data.place(context.config.data, folder.path)
    metadata = replace(describe(context), items=items, place=place)
    folder.start_manifest(command, metadata, context.config.hash(), context.plan)
    if parts := sources_of(context.config):
        folder.note_custom_components(parts)
    if (stages := build.shift_splits(context.config, context.dataset)) and folder.writes:
        stages.write(folder.file("shift.csv"), context.dataset.label_names)
    folder.write_text("config.toml", context.config.to_toml())


def sources_of(config: ResolvedConfig) -> dict[str, dict[str, str]]:
    """Name -> module, file and hash of the source, of every part that is not ours. Data given as an
    object are known by their items instead."""
    result = {}
    stages = [stage_config(config, stage.name) for stage in config.training.stages]
    for name, component in (pair for trained in (config, *stages) for pair in _components(trained)):
        origin = custom_components.origin_of(component)
        if origin is not None:
            result[name] = origin.to_dict()
    return result


def refuse_other_sources(folder: RunFolder, config: ResolvedConfig) -> None:
    """Stops a run that would go on with code it did not begin with."""
    before: dict[str, dict[str, str]] = folder.manifest().custom_components or {}
    for name, now in sources_of(config).items():
        then = before.get(name)
        if then is None or then["sha256"] != now["sha256"]:
            place = now["file"] or now["qualified"]
            raise ValueError(
                f"the source of {custom_components.short_name(name)} ({place}) is not the one "
                f"{folder.path} "
                "began with: put it back, or start a new run with another "
                + by_front_end("--out", "out")
            )


def _components(config: ResolvedConfig) -> Iterator[tuple[str, Any]]:
    """Every part of a config that may come from outside, by its name."""
    named = [("losses", component.name) for component in config.losses]
    named += [("samplers", config.sampler.name)]
    named += [("protocols", config.evaluation.protocol.name), ("data", config.data.name)]
    named += [("miners", config.miner.name)] if config.miner is not None else []
    named += [("regularizers", component.name) for component in config.regularizers]
    named += [
        ("metrics", custom_components.without_value(name)) for name in config.evaluation.metrics
    ]
    for kind, name in named:
        if not (kind == "data" and custom_components.is_object(name)) and not name.startswith(
            "pml:"
        ):
            yield name, registry.find(kind, name)
    if (grades := config.data.relevance.grades) and custom_components.is_reference(grades):
        yield grades, custom_components.find(grades)
    for kind, name in (("networks", config.model.network), ("backbones", config.model.backbone)):
        if custom_components.is_custom(name) or name in custom_components.entry_points(kind):
            yield name, registry.find(kind, name)

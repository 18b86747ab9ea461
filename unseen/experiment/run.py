"""The whole way of a run: training, or going on with it, then one reading of the test classes.

`fit` is the one door: the command line and `unseen.fit` go through it. One process at a time:
whoever comes to a folder that is being trained in is told by whom. A caller that has claimed the
folder before hands in its `lock`.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from unseen import assemble, catalogue, find_data, outside
from unseen.config import Config, SettledConfig
from unseen.experiment.budget import planned
from unseen.experiment.claim import claimed, is_done
from unseen.experiment.clock import AFTER, Clock, Length
from unseen.experiment.fit import Fit
from unseen.experiment.items import items_of, refuse_other_items
from unseen.experiment.judge import FINAL, judge
from unseen.experiment.ladder import climb, kept_context
from unseen.experiment.refit import refit, refit_minutes
from unseen.experiment.run_context import (
    RunContext,
    Watch,
    as_stored,
    computing,
    prepare,
)
from unseen.experiment.run_facts import describe
from unseen.experiment.shares import shared, taken
from unseen.rungs import FIRST, rung_config
from unseen.training.processes import Processes, joined
from unseen.training.result import Result, read_result
from unseen.training.run_folder import RunFolder
from unseen.training.selection import Selection

JUDGED, TRAINED = "train and judge", "train"

Claim = AbstractContextManager[Any]  # of a run folder, see `RunFolder.lock`


class Show(Protocol):
    """Who watches a run."""

    def preparing(self, processes: Processes) -> AbstractContextManager[Watch]:
        """While the data are read and the config is settled."""
        ...

    def training(self, context: RunContext, out: Path) -> AbstractContextManager[Watch]:
        """While it trains and is judged; the setting says what and why."""
        ...


class Quiet:
    """Nobody watches."""

    def preparing(self, processes: Processes) -> AbstractContextManager[Watch]:
        return nullcontext(Watch())

    def training(self, context: RunContext, out: Path) -> AbstractContextManager[Watch]:
        return nullcontext(Watch())


@dataclass(frozen=True)
class Fitted:
    """A run at its end."""

    path: Path
    context: RunContext
    result: Result
    was_finished: bool  # before the call


def fit(
    config: Config,
    out: Path | None,
    command: str,
    show: Show | None = None,
    accept_changes: bool = False,
) -> Fitted:
    """Settles a config, claims a folder, trains or goes on, and judges; a finished run is read.
    `out` None: a name in runs/. Of several processes (torchrun) the first writes."""
    show = show or Quiet()
    with joined(config.device) as processes, ExitStack() as held:
        with show.preparing(processes) as watch:
            context = planned(prepare(config, watch, processes=processes))
        path = processes.agreed(lambda: claimed(context, out, held, accept_changes))
        folder = RunFolder(path, processes)
        context = as_stored(context, folder)
        if is_done(folder):
            return Fitted(path, context, read_result(folder), was_finished=True)
        with show.training(context, path) as watch:
            result = train_and_judge(context, path, command, watch, lock=nullcontext())
    return Fitted(path, context, result, was_finished=False)


def train_and_judge(
    context: RunContext,
    out: Path,
    command: str,
    watch: Watch | None = None,
    lock: Claim | None = None,
) -> Result:
    """Trains, or goes on training, then judges; returns what stands in result.json."""
    folder = RunFolder(out, context.processes)
    context = as_stored(context, folder)
    with lock or folder.lock(context.config.hash()), shared(context, out, JUDGED) as context:
        return _train_and_judge(context, out, command, watch or Watch())


def train(context: RunContext, out: Path, command: str, watch: Watch | None = None) -> Selection:
    """Trains, or goes on training; returns what was selected. The test classes are not read."""
    folder = RunFolder(out, context.processes)
    context = as_stored(context, folder)
    with folder.lock(context.config.hash()), shared(context, out, TRAINED) as context:
        return _train(context, RunFolder(out, context.processes), command, watch or Watch())


def take_part() -> None:
    """What the further processes of a run do (`shares.py`); the first one writes and tells."""
    with taken(Path(sys.argv[1]), int(sys.argv[2])) as (context, out, purpose):
        if purpose == JUDGED:
            _train_and_judge(context, out, "", Watch())
        else:
            _train(context, RunFolder(out, context.processes), "", Watch())


def _train_and_judge(context: RunContext, out: Path, command: str, watch: Watch) -> Result:
    folder = RunFolder(out, context.processes)
    selection = _train(context, folder, command, watch)
    kept = kept_context(context, selection)
    result = judge(kept, folder, selection, FINAL, watch)
    if (config := context.config).shots or config.open_set:
        from unseen.experiment.further import judge_further  # noqa: PLC0415 - few ask for it

        judge_further(kept, folder, watch)
    folder.note_end()
    return result


def _train(context: RunContext, folder: RunFolder, command: str, watch: Watch) -> Selection:
    """A run that began with other items is not touched."""
    if folder.is_started:
        refuse_other_items(folder, context.dataset, context.split)
        refuse_other_sources(folder, context.config)
    clock = Clock(folder, watch, context.config.minutes, context.began, context.now)
    watch = clock.kept_by(watch)
    is_planned = any(rung.minutes is not None for rung in context.config.ladder)
    is_short = clock.minutes is not None and not is_planned
    length = Length(clock, FIRST, AFTER * (clock.minutes or 0.0)) if is_short else None
    with computing(context):  # a value that a method refuses stops here, before anything is written
        fit = Fit(context, folder, watch, length=length)
    if not folder.is_started:
        begin(context, folder, command)
    with computing(context):
        selection = fit.run()
        if context.config.ladder:
            selection = climb(fit, selection, clock)
        if context.config.refit and clock.allows("refit", *refit_minutes(context, selection)):
            selection = refit(context, folder, selection, watch, clock)
    return selection


def begin(context: RunContext, folder: RunFolder, command: str) -> None:
    """Writes down what the run is about; with its config a run has begun."""
    items = items_of(context.dataset, context.split).write(folder)
    place = find_data.place(context.config.data, folder.path)
    facts = replace(describe(context), items=items, place=place)
    folder.start_manifest(command, facts, context.config.hash(), context.plan)
    if parts := sources_of(context.config):
        folder.note_parts(parts)
    if (ladder := assemble.shift_ladder(context.config, context.dataset)) and folder.writes:
        ladder.write(folder.file("shift.csv"), context.dataset.label_names)
    folder.write_text("config.toml", context.config.to_toml())


def sources_of(config: SettledConfig) -> dict[str, dict[str, str]]:
    """Name -> module, file and hash of the source, of every part that is not ours. Data given as an
    object are known by their items instead."""
    found = {}
    rungs = [rung_config(config, rung.name) for rung in config.ladder]
    for name, part in (pair for trained in (config, *rungs) for pair in _parts(trained)):
        origin = outside.origin_of(part)
        if origin is not None:
            found[name] = origin.to_dict()
    return found


def refuse_other_sources(folder: RunFolder, config: SettledConfig) -> None:
    """Stops a run that would go on with code it did not begin with."""
    before: dict[str, dict[str, str]] = folder.manifest().parts or {}
    for name, now in sources_of(config).items():
        then = before.get(name)
        if then is None or then["sha256"] != now["sha256"]:
            place = now["file"] or now["qualified"]
            raise ValueError(
                f"the source of {outside.short_name(name)} ({place}) is not the one {folder.path} "
                "began with: put it back, or start a new run with another --out"
            )


def _parts(config: SettledConfig) -> Iterator[tuple[str, Any]]:
    """Every part of a config that may come from outside, by its name."""
    named = [("losses", config.loss.name), ("samplers", config.sampler.name)]
    named += [("protocols", config.protocol), ("data", config.data.name)]
    named += [("miners", config.miner.name)] if config.miner is not None else []
    named += [("regularizers", part.name) for part in config.regularizers]
    named += [("metrics", outside.without_value(name)) for name in config.metrics]
    for kind, name in named:
        if not (kind == "data" and outside.is_object(name)) and not name.startswith("pml:"):
            yield name, catalogue.find(kind, name)
    if (grades := config.relevance.grades) and outside.is_reference(grades):
        yield grades, outside.find(grades)
    for kind, name in (("networks", config.network), ("backbones", config.backbone)):
        if outside.is_from_outside(name) or name in outside.announced(kind):
            yield name, catalogue.find(kind, name)

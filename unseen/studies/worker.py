"""A worker: claims one run after the other and runs it, until the study is at its end.

It keeps what runs share: the data, opened once, and the scores of baselines. A run it takes over
from a dead worker goes on from its last checkpoint, if the run folder is on the same disk; one that
had finished but was not yet reported is only reported.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from optuna.trial import FrozenTrial

from unseen.config import build, find_data
from unseen.config import schema as configs
from unseen.core import read_limits
from unseen.core.contracts import Dataset, FloatArray
from unseen.evaluation.evaluate import Evaluation
from unseen.evaluation.metric_names import parse_metric
from unseen.metrics.base import Clustering
from unseen.models.descriptor import described
from unseen.runs.evaluate_run import evaluate_at
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train, train_and_evaluate
from unseen.runs.run_items import changes_since
from unseen.runs.run_networks import selected_context
from unseen.studies.results import MUST_BEAT
from unseen.studies.run_files import (
    KINDS,
    PER_CLASS,
    PER_QUERY,
    PLANNED,
    STATE,
    Ended,
    PerClass,
    PerQuery,
    State,
    StoredPlan,
)
from unseen.studies.run_queue import GRACE, Queue
from unseen.studies.study_file import Parameter, Plan, PlannedRun, Values
from unseen.studies.trial_notes import note
from unseen.studies.tuning import (
    Outcome,
    all_tuned,
    known_runs,
    parameters_of,
    total_runs,
    tuning_runs,
)
from unseen.training import event_log
from unseen.training.checkpoint import Checkpoints
from unseen.training.events import Epoch, Event
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import FILE as SELECTION
from unseen.training.selected_weights import read_selection

IDLE_SECONDS = 0.5
STORED_ROWS = ("trained", *MUST_BEAT)  # what is kept of a run class by class


class Worker:
    """Works on a study in its storage; run folders go to `out/runs`."""

    def __init__(self, plan: Plan, storage: str, out: Path, grace: int = GRACE) -> None:
        self.plan, self.out = plan, out
        self.configurations = {_place(v.labels): v for v in plan.configurations()}
        self.total = total_runs(plan)
        self.queues = {"": Queue(storage, plan.name, plan.retries, grace)}
        for place, configuration in self.configurations.items():
            if tuning_runs(plan, configuration):
                name = f"{plan.name} / {place}"
                self.queues[place] = Queue(storage, name, plan.retries, grace)
        self.planned_runs: dict[str, PlannedRun] = {}
        self.data: dict[str, Dataset] = {}
        self.known_scores: dict[bytes, Evaluation] = {}

    def work(self) -> None:
        """Trains runs until all have ended; waits for those of other workers, to take them over."""
        torch.set_num_threads(1)
        self.resolve()  # what is due is claimed without a pause
        while True:
            for queue in self.queues.values():
                trial = queue.claim()
                if trial is not None:
                    self._run(queue, trial)
                    break
            else:
                if self.resolve():
                    return
                time.sleep(IDLE_SECONDS)

    def resolve(self) -> bool:
        """Enqueues what is due, takes runs of dead workers back; True when every run ended."""
        for queue in self.queues.values():
            queue.release_dead()
        outcomes = self.outcomes()
        for place, queue in self.queues.items():
            queue.enqueue(
                [planned for planned in self.planned_runs.values() if _queue_of(planned) == place]
            )
        return all_tuned(self.plan, outcomes) and all(key in outcomes for key in self.planned_runs)

    def retry(self) -> None:
        """Gives every failed run another chance."""
        self.outcomes()
        for place, queue in self.queues.items():
            queue.retry(
                [planned for planned in self.planned_runs.values() if _queue_of(planned) == place]
            )

    def refuse_changed_data(self) -> None:
        """Runs are compared with each other: a ValueError says what has changed since one of them
        began. One run of each data set is checked."""
        checked = set()
        for planned in self.planned_runs.values():
            folder = RunFolder(self.out / "runs" / planned.name)
            name, config = _data_of(planned.values)
            if name in checked or not folder.is_started or not folder.has("manifest.json"):
                continue
            checked.add(name)
            if message := changes_since(
                folder, find_data.open_data(config.data, None, config.data.strict)
            ):
                raise ValueError(f"{message}. Put them back, or compare anew in another folder")

    def outcomes(self) -> dict[str, Outcome]:
        """How runs ended so far; `planned_runs` then holds those that are known."""
        outcomes: dict[str, Outcome] = {}
        for queue in self.queues.values():
            outcomes |= queue.outcomes()
        self.planned_runs = {planned.key: planned for planned in known_runs(self.plan, outcomes)}
        return outcomes

    def _run(self, queue: Queue, trial: FrozenTrial) -> None:
        key = note(trial).planned
        if key not in self.planned_runs:
            self.outcomes()
        if key not in self.planned_runs:
            queue.fail(trial, None)  # of an older plan
            return
        planned = self.planned_runs[key]
        folder = RunFolder(self.out / "runs" / planned.name)
        began = time.monotonic()
        with queue.beating(trial):
            try:
                outcome = self._outcome(queue, trial, planned, folder)
            except Exception as error:  # whatever a run dies of is recorded, and the study goes on
                message = f"{type(error).__name__}: {error}"
                self._note_end(folder, "failed", began, message)
                queue.fail(trial, message, small_files(folder))
                return
        self._note_end(folder, outcome.state, began)
        queue.finish(trial, outcome, small_files(folder))

    def _outcome(
        self, queue: Queue, trial: FrozenTrial, planned: PlannedRun, folder: RunFolder
    ) -> Outcome:
        """Trains and values a run, unless its folder says that this was done."""
        values, tuned, request = planned.values, planned.parameters, None
        if planned.stage == "search" and self.plan.search and self.plan.search.mode == "tpe":
            request = self._request(queue, trial, planned)
            configuration = self.configurations[_place(planned.labels)]
            tuned = {p.key: suggest(request, p) for p in parameters_of(self.plan, configuration)}
            for name, value in tuned.items():
                values = configs.put(values, name, value)
            request.set_user_attr("parameters", json.dumps(tuned))
        if _state(folder) == "done" and folder.holds(SELECTION):  # it died before it told
            return Outcome("done", _selected(folder), tuned)
        metadata = (planned.key, planned.stage, planned.labels, dict(tuned))
        folder.write_json(PLANNED, StoredPlan(*metadata, values["seed"], values.get("fold")))
        try:
            self._train(planned, values, folder, _reporting(request, self.plan))
        except optuna.TrialPruned:
            return Outcome("pruned", parameters=tuned)
        return Outcome("done", _selected(folder), tuned)

    def _train(
        self, planned: PlannedRun, values: Values, folder: RunFolder, callbacks: Callbacks
    ) -> None:
        name, config = _data_of(values)
        prepared = prepare(config, callbacks, self.data.get(name), is_named=True)
        self.data[name] = prepared.dataset
        context = replace(prepared, known_scores=self.known_scores)
        command = f"unseen study: {self.plan.name}, {planned.title}"
        if planned.stage == "search":
            train(context, folder.path, command, callbacks)
            folder.note_end()
            return
        layers = self.plan.layers_of(planned.labels[self.plan.compared])
        for layer in layers:  # a misspelt one is an error before any training
            described(build.network(context.config), layer)
        train_and_evaluate(context, folder.path, command, callbacks)
        selected = selected_context(context, read_selection(folder))
        folder.write_json(PER_CLASS, per_class(selected, folder, self.plan.metric, layers))
        folder.write_json(PER_QUERY, per_query(selected, folder, self.plan.metric))

    def _request(self, queue: Queue, trial: FrozenTrial, planned: PlannedRun) -> optuna.Trial:
        """The trial with a sampler that depends on nothing but the plan and the trials before."""
        search = self.plan.search
        assert search is not None
        queue.study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=max(3, search.trials // 4), seed=1000 * search.seed + planned.number
        )
        queue.study.pruner = optuna.pruners.NopPruner()
        if search.prune:
            queue.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1)
        return optuna.Trial(queue.study, queue.trial_id(trial))

    def _note_end(self, folder: RunFolder, state: Ended, began: float, error: str = "") -> None:
        """The last file of a run: how it ended."""
        if _state(folder) == state and not error:
            return
        seconds = round(time.monotonic() - began, 2)
        folder.write_json(STATE, State(state, seconds, error))
        if not error:
            Checkpoints(folder.file("checkpoint")).clear()


def per_query(context: RunContext, folder: RunFolder, metric: str) -> PerQuery:
    """Of the study's metric and of every recall, which take least: archives are to stay small."""
    test, query = context.split.test, context.split.query
    labels = context.dataset.labels[test if query is None else test[query]]
    values: dict[str, FloatArray] = {}
    with read_limits.load(folder.checked("embeddings/per_query.npz")) as arrays:
        for name in arrays.files:
            row, _, other = name.partition("/")
            if row in STORED_ROWS and (other == metric or other.startswith("recall@")):
                values |= {name: each} if len(each := arrays[name]) == len(labels) else {}
    return PerQuery.of(labels, values)


def per_class(
    context: RunContext, folder: RunFolder, metric: str, layers: Sequence[str] = ()
) -> PerClass:
    """What paired comparisons need of a run, and small enough for the storage."""
    clusterings = [
        name
        for name in context.config.evaluation.metrics
        if name != metric and isinstance(parse_metric(name), Clustering)
    ]
    with read_limits.load(folder.checked("embeddings/per_query.npz")) as arrays:
        stored = {
            name: {
                row: arrays[f"{row}/{name}"]
                for row in STORED_ROWS
                if f"{row}/{name}" in arrays.files
            }
            for name in (metric, *clusterings)
        }
    others = [_sums_of(context, name, stored[name]) for name in clusterings]
    there = {layer: evaluate_at(context, folder, layer, metric) for layer in layers}
    result = _sums_of(context, metric, stored[metric], there)
    return replace(result, others=[each for each in others if each.classes])


def _sums_of(
    context: RunContext,
    metric: str,
    values: Mapping[str, FloatArray],
    layers: Mapping[str, Mapping[str, FloatArray]] | None = None,
) -> PerClass:
    """Sums by class of one metric's values; no classes where they are not of queries or items."""
    test, query = context.split.test, context.split.query
    of_items = isinstance(parse_metric(metric), Clustering)
    labels = context.dataset.labels[test if query is None or of_items else test[query]]
    if len(values.get("trained", ())) != len(labels):
        return PerClass(metric, classes=[], sums=[], counts=[], baselines={}, layers={})
    known = ~np.isnan(values["trained"])
    classes, place = np.unique(labels[known], return_inverse=True)

    def sums(result: Mapping[str, FloatArray]) -> dict[str, list[float]]:
        return {
            row: np.bincount(place, result[row][known], len(classes)).round(9).tolist()
            for row in STORED_ROWS
            if row in result
        }

    own = sums(values)
    return PerClass(
        metric,
        classes=classes.tolist(),
        sums=own.pop("trained"),
        counts=np.bincount(place, minlength=len(classes)).tolist(),
        baselines=own,
        layers={layer: sums(rows) for layer, rows in (layers or {}).items()},
    )


def suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    """A value of a parameter, as the sampler proposes it."""
    p = parameter
    if p.values:
        place = trial.suggest_categorical(p.key, list(range(len(p.values))))
        return p.values[place]
    assert p.low is not None
    assert p.high is not None
    if isinstance(p.low, int) and isinstance(p.high, int):
        return trial.suggest_int(p.key, p.low, p.high, step=int(p.step or 1), log=p.log)
    return trial.suggest_float(p.key, p.low, p.high, step=p.step, log=p.log)


def small_files(folder: RunFolder) -> dict[str, str]:
    """What other machines need of a run: its small files, and the event log's epochs."""
    names = ("config.toml", *KINDS)
    files = {n: folder.file(n).read_text() for n in names if folder.holds(n)}
    events = event_log.read(folder.file("events.jsonl"))
    epochs = [event for event in events if isinstance(event, Epoch)]
    return files | {"events.jsonl": event_log.text_of(epochs)}


def _reporting(trial: optuna.Trial | None, plan: Plan) -> Callbacks:
    """Tells Optuna the value after each epoch, and stops a run that it finds hopeless."""
    if trial is None or plan.search is None or not plan.search.prune:
        return Callbacks()

    def listen(event: Event) -> None:
        if isinstance(event, Epoch) and (scores := event.validation or event.test):
            trial.report(scores["recall@1"], event.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    return Callbacks([listen])


def _state(folder: RunFolder) -> str:
    return folder.read(STATE, State).state if folder.holds(STATE) else ""


def _selected(folder: RunFolder) -> float:
    return read_selection(folder).value


def _data_of(values: Values) -> tuple[str, configs.Config]:
    """A config, and a name that configs of the same data share."""
    config = configs.make(values)
    return f"{config.data.name} {config.data.values} strict={config.data.strict}", config


def _place(labels: dict[str, str]) -> str:
    return ", ".join(labels.values())


def _queue_of(planned: PlannedRun) -> str:
    return _place(planned.labels) if planned.stage == "search" else ""

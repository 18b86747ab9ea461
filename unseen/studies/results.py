"""What a study found, read from its run folders alone.

    results = read(Path("studies/losses"))
    results.frame         a DataFrame with one row per run: labels, seed, state, every metric
    standings(results)    one row per method and experiment: mean and spread
    results.comparisons() each method against the best, with its conclusion (`validity_checks.py`)

A run that failed is a row that says so.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from unseen.config import schema as configs
from unseen.config.stages import FIRST
from unseen.core.files import refuse_links
from unseen.core.names import near_path
from unseen.core.statistics import Effect, Spread, crossed, over_seeds
from unseen.evaluation.evaluate import Score
from unseen.reports.score_tables import ON_TEST, incomplete
from unseen.studies import run_files
from unseen.studies import study_file as plans
from unseen.studies.run_files import PerClass, PerQuery
from unseen.studies.study_file import Plan, PlannedRun
from unseen.studies.tuning import Outcome, known_runs, tuning_runs
from unseen.training import event_log, json_files, result, selected_weights
from unseen.training.checksums import checked, must_exist
from unseen.training.events import Epoch, Scores
from unseen.training.nested import AT
from unseen.training.result import Result, Row
from unseen.training.selected_weights import Selection

if TYPE_CHECKING:
    import pandas

    from unseen.studies.validity_checks import Compared

Json = dict[str, Any]
T = TypeVar("T")
REMEDY = "`unseen study run`, given again, restores it from the study's storage"
TRAINED = "trained"  # the row of scores that are of the trained network
MUST_BEAT = ("untrained", "principal")  # see `validity_checks.py`
BASELINES = (*MUST_BEAT, "pixels", "features")  # rows without training, in the order of tables


@dataclass(frozen=True)
class Run:
    """A run and what its folder holds; `state` is "open" when there is none yet."""

    planned: PlannedRun
    folder: Path
    state: Literal["open", "done", "failed", "pruned"]
    error: str = ""
    seconds: float = math.nan
    result: Result | None = None
    selection: Selection | None = None
    per_class: PerClass | None = None
    parameters: Json | None = None

    @property
    def replicate(self) -> tuple[int, int]:
        """Seed and fold: what runs of different methods are paired by."""
        return int(self.planned.values["seed"]), int(self.planned.values.get("fold") or 0)

    @property
    def at_start(self) -> bool:
        """Whether no epoch was better than the weights it began with, which it kept."""
        return self.selection is not None and self.selection.epoch == -1

    @property
    def epoch(self) -> int | None:
        """The selected epoch, counted from 1."""
        return None if self.selection is None else self.selection.epoch + 1

    def score(self, metric: str, row: str = "trained") -> float:
        """A test score; NaN where there is none."""
        result = self.result.score(row, metric) if self.result else None
        return math.nan if result is None else result.value

    def by_class(self, metric: str, row: str = "trained") -> "ByClass | None":
        """A test score class by class; None where only their mean is stored."""
        if self.per_class is None:
            return None
        all_metrics = {each.metric: each for each in (self.per_class, *self.per_class.others)}
        stored = all_metrics.get(metric)
        if stored is None:
            return None
        sums = stored.sums if row == "trained" else stored.baselines.get(row)
        if not sums:
            return None
        return ByClass(tuple(stored.classes), tuple(stored.counts), np.asarray(sums))

    @property
    def per_query(self) -> PerQuery | None:
        """The values of every test query; None where the run is older than their file."""
        return _file(self.folder, run_files.PER_QUERY, PerQuery)

    def at(self, layer: str) -> "Run":
        """The same network read at another layer; no number where it was not evaluated there."""
        stored, result = self.per_class, self.result
        rows = None if stored is None else stored.layers.get(layer)
        if stored is None or result is None or rows is None:
            return replace(self, result=None, per_class=None)
        queries = sum(stored.counts)
        scores = {
            name: Row({stored.metric: Score(sum(sums) / queries)}) for name, sums in rows.items()
        }
        others = {name: sums for name, sums in rows.items() if name != "trained"}
        there = replace(stored, sums=rows["trained"], baselines=others, layers={}, others=[])
        there_too = replace(result, scores=scores, gain=None, thirds=None)
        return replace(self, result=there_too, per_class=there)

    def curve(self, metric: str) -> list[float]:
        """The metric, or recall@1, on the classes to select on, of each validated epoch."""
        return [scores.get(metric, scores["recall@1"]) for scores in self._validations]

    @cached_property
    def _validations(self) -> list[Scores]:
        """Of the selected stage, where there are several."""
        stages = self.selection.stages if self.selection else None
        stage = FIRST if stages is None else stages.selected
        folder = self.folder if stage == FIRST else self.folder / "stages" / stage
        events = [e for e in event_log.read(folder / "events.jsonl") if isinstance(e, Epoch)]
        return [scores for event in events if (scores := event.validation or event.test)]


@dataclass(frozen=True)
class ByClass:
    """Sums over the queries of each test class."""

    classes: tuple[int, ...]
    counts: tuple[int, ...]
    sums: NDArray[np.float64]  # [C]


@dataclass(frozen=True)
class Results:
    """The runs of a study, those of searches apart."""

    plan: Plan
    out: Path
    runs: tuple[Run, ...]
    searches: tuple[Run, ...]

    @property
    def on_test(self) -> bool:
        """Some run was selected by its score on test classes."""
        everything = (*self.runs, *self.searches)
        return any(run.selection is not None and run.selection.on == "test" for run in everything)

    @property
    def warnings(self) -> list[str]:
        """What every table and page of it must say: chosen on test classes, data that lack some."""
        lacking = {incomplete(run.result): None for run in self.runs if run.result}
        return [ON_TEST] * self.on_test + [text for text in lacking if text]

    def metrics(self) -> list[str]:
        """Every metric of any run in the order of the settings, the plan's first."""
        request = configs.make(self.runs[0].planned.values).evaluation.metrics if self.runs else []
        rows = [run.result.scores.get("trained") for run in self.runs if run.result]
        result = {metric for row in rows if row is not None for metric in row.metrics}
        known = [m for m in request if m in result] + sorted(result - set(request))
        return [self.plan.metric, *(metric for metric in known if metric != self.plan.metric)]

    def methods(self) -> list[str]:
        """Those that were run, then those that are another's network read at another layer."""
        run = list(dict.fromkeys(run.planned.labels[self.plan.compared] for run in self.runs))
        return run + [f"{name}{AT}{layer}" for name in run for layer in self.plan.layers_of(name)]

    def experiments(self) -> list[str]:
        return list(dict.fromkeys(self.experiment(run) for run in self.runs))

    def experiment(self, run: Run, without: Collection[str] = ()) -> str:
        """The values of the factors neither compared nor in `without`; bare numbers with theirs."""
        apart = {self.plan.compared, *without}
        rest = {k: v for k, v in run.planned.labels.items() if k not in apart}
        return ", ".join(f"{k} {v}" if v[:1].isdigit() else v for k, v in rest.items())

    def of(self, experiment: str, method: str) -> list[Run]:
        own = [run for run in self.runs if self.experiment(run) == experiment]
        result = [run for run in own if run.planned.labels[self.plan.compared] == method]
        if result:
            return result
        name, _, layer = method.rpartition(AT)
        return [run.at(layer) for run in own if run.planned.labels[self.plan.compared] == name]

    def comparisons(self) -> "list[Compared]":
        """Each method against the best of its experiment, or the plan's reference."""
        from unseen.studies.validity_checks import comparisons  # noqa: PLC0415 - made of results

        return comparisons(self)

    @property
    def frame(self) -> "pandas.DataFrame":
        """`rows` as a DataFrame."""
        import pandas  # noqa: PLC0415 - half a second

        return pandas.DataFrame(self.rows())

    def rows(self) -> list[Json]:
        """A flat row per run: labels, seed, fold, state, folder, selected epoch, scores in 0..1."""
        return [
            run.planned.labels
            | run.planned.parameters
            | {"seed": run.replicate[0], "fold": run.replicate[1], "state": run.state}
            | {"folder": str(run.folder), "seconds": run.seconds, "epoch": run.epoch}
            | {metric: run.score(metric) for metric in self.metrics()}
            for run in self.runs
        ]


@dataclass(frozen=True)
class Standing:
    """A method (or a baseline) in an experiment. at_start: how many of its runs kept the weights
    they began with. of: the methods of a baseline, where others, evaluated by another distance,
    have another."""

    experiment: str
    method: str
    scores: dict[str, Spread]  # by metric; empty when every run failed
    done: int
    failed: int
    planned: int
    is_best: bool = False
    is_baseline: bool = False
    tuning_runs: int = 0
    at_start: int = 0
    of: tuple[str, ...] = ()


def read(out: Path) -> Results:
    """The results in a study folder."""
    refuse_links(out)
    if not (out / "study.toml").exists():
        near = near_path(out) or ". `unseen study run` makes one."
        raise ValueError(f"{out} is no study: it has no study.toml{near}")
    plan = plans.load(checked(out, "study.toml", REMEDY))
    outcomes = {}
    for configuration in plan.configurations():
        for planned in tuning_runs(plan, configuration):
            run = _read_run(out, planned)
            if run.state != "open":
                value = math.nan if run.selection is None else run.selection.value
                outcomes[planned.key] = Outcome(run.state, value, run.parameters)
    planned_runs = known_runs(plan, outcomes)
    runs = [_read_run(out, planned) for planned in planned_runs]
    return Results(
        plan,
        out,
        tuple(run for run in runs if run.planned.stage == "final"),
        tuple(run for run in runs if run.planned.stage == "search"),
    )


def standings(results: Results) -> list[Standing]:
    """Methods of every experiment, best first, then the baselines they must beat."""
    rows: list[Standing] = []
    for experiment in results.experiments():
        groups = {method: results.of(experiment, method) for method in results.methods()}
        groups = {method: runs for method, runs in groups.items() if runs}
        rows += _ranked(results, experiment, groups)
        rows += _baselines(results, experiment, groups)
    return rows


def _ranked(results: Results, experiment: str, groups: dict[str, list[Run]]) -> list[Standing]:
    metric = results.plan.metric

    def mean(method: str) -> float:
        values = [run.score(metric) for run in groups[method] if run.state == "done"]
        return float(np.mean(values)) if values else -math.inf

    order = sorted(groups, key=mean, reverse=True)
    rows = []
    for method in order:
        runs = groups[method]
        done = [run for run in runs if run.state == "done"]
        searched = [run for run in results.searches if run.planned.labels == runs[0].planned.labels]
        rows.append(
            Standing(
                experiment,
                method,
                _spreads(done, results.metrics()),
                done=len(done),
                failed=sum(run.state == "failed" for run in runs),
                planned=len(runs),
                is_best=method == order[0] and bool(done),
                tuning_runs=len(searched),
                at_start=sum(run.at_start for run in done),
            )
        )
    return rows


Term = tuple[float, Run, str, str]  # weight of a score, its run, metric and row


def effect(first: Sequence[Run], second: Sequence[Run], metric: str) -> Effect | None:
    """What the second runs add to the first, paired by seed and fold; None without a pair."""
    others = {run.replicate: run for run in second if run.state == "done"}
    done = [run for run in first if run.state == "done"]
    pairs = [(run, others[run.replicate]) for run in done if run.replicate in others]
    return combined([[(-1, one, metric, TRAINED), (1, two, metric, TRAINED)] for one, two in pairs])


def gain(runs: Sequence[Run], row: str, metric: str) -> Effect | None:
    """What the runs have over one of their rows without training."""
    done = [run for run in runs if run.state == "done"]
    return combined([[(-1, run, metric, row), (1, run, metric, TRAINED)] for run in done])


def combined(replicates: Sequence[Sequence[Term]]) -> Effect | None:
    """The sum of each replicate's terms, with its interval over seeds and classes; over seeds alone
    where scores are not known by the same classes."""
    if not replicates:
        return None
    tables = [(weight, run.by_class(*of)) for terms in replicates for weight, run, *of in terms]
    known = [(weight, each) for weight, each in tables if each is not None]
    request = {(each.classes, each.counts) for _, each in known}
    if len(known) < len(tables) or len(request) != 1:
        scores = [[weight * run.score(*of) for weight, run, *of in terms] for terms in replicates]
        return crossed([[sum(row)] for row in scores])
    ((_, counts),) = request
    sums = np.asarray([weight * each.sums for weight, each in known])  # [S terms, C]
    sums = sums.reshape(len(replicates), -1, len(counts)).sum(axis=1)
    return crossed(sums / np.asarray(counts), counts)


ByReplicate = Mapping[tuple[int, int], Run]  # seed and fold


def _baselines(
    results: Results, experiment: str, groups: Mapping[str, list[Run]]
) -> list[Standing]:
    """Untrained networks and raw inputs, once for each seed and fold; a row for each group of
    methods that score the same without training."""
    rows = []
    for row in BASELINES:
        alike: list[tuple[list[str], dict[tuple[int, int], Run]]] = []
        for method, runs in groups.items():
            own = {run.replicate: run for run in runs if run.result and row in run.result.scores}
            match = (each for each in alike if _same(own, each[1], row, results.plan.metric))
            methods, known = next(match, None) or ([], {})
            if own and not methods:
                alike.append((methods, known))
            methods.append(method)
            known |= own | known
        for methods, known in alike:
            scores, number = _spreads([*known.values()], results.metrics(), row), len(known)
            of = tuple(methods) if len(alike) > 1 else ()
            rows.append(
                Standing(experiment, row, scores, number, 0, number, is_baseline=True, of=of)
            )
    return rows


def _same(own: ByReplicate, other: ByReplicate, row: str, metric: str) -> bool:
    """Whether runs of the same seed and fold score the same without training."""
    pairs = [(own[r].score(metric, row), other[r].score(metric, row)) for r in own.keys() & other]
    return bool(own) and all(a == b or math.isnan(a + b) for a, b in pairs)


def _spreads(runs: list[Run], metrics: list[str], row: str = "trained") -> dict[str, Spread]:
    values = {metric: [run.score(metric, row) for run in runs] for metric in metrics}
    known = {m: [v for v in result if not math.isnan(v)] for m, result in values.items()}
    return {metric: over_seeds(result) for metric, result in known.items() if result}


def _read_run(out: Path, planned: PlannedRun) -> Run:
    folder = out / "runs" / planned.name
    state = _file(folder, run_files.STATE, run_files.State)
    if state is None:
        return Run(planned, folder, "open")
    stored_planned = _file(folder, run_files.PLANNED, run_files.StoredPlan)
    return Run(
        planned,
        folder,
        state.state,
        state.error,
        state.seconds,
        _file(folder, result.FILE, Result),
        _file(folder, selected_weights.FILE, Selection),
        _file(folder, run_files.PER_CLASS, PerClass),
        stored_planned.parameters if stored_planned else None,
    )


def _file(folder: Path, name: str, kind: type[T]) -> T | None:
    """None for one that was never written."""
    if not (folder / name).exists() and not must_exist(folder, name):
        return None
    text = checked(folder, name, REMEDY).read_text()
    return json_files.parsed(kind, text, str(folder / name), f"delete it; {REMEDY}")

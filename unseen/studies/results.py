"""What a study found, read from its run folders alone.

    results = read(Path("studies/losses"))
    results.rows()        one dict per run: labels, seed, state, every metric
    standings(results)    one row per method and experiment: mean and spread
    results.comparisons() each method against the best, with its gates and verdict: see `gates.py`

A run that failed is a row that says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from unseen import config as configs
from unseen.evaluation.evaluate import Score
from unseen.names import near_path
from unseen.nested import AT
from unseen.reports.tables import ON_TEST, incomplete
from unseen.rungs import FIRST
from unseen.statistics import Effect, Spread, crossed, over_seeds
from unseen.studies import plan as plans
from unseen.studies.plan import Cell, Plan
from unseen.studies.run_files import CELL, PER_CLASS, STATE, PerClass, State, StoredCell
from unseen.studies.search import Outcome, known_cells, search_cells
from unseen.training import journal, result, selection, stored
from unseen.training.checksums import checked, must_exist
from unseen.training.events import Epoch, Scores
from unseen.training.result import Result, Row
from unseen.training.selection import Selection

if TYPE_CHECKING:
    from unseen.studies.gates import Compared

Json = dict[str, Any]
T = TypeVar("T")
REMEDY = "`unseen study run`, given again, restores it from the study's storage"
MUST_BEAT = ("untrained", "principal")  # see `gates.py`
BASELINES = (*MUST_BEAT, "pixels", "features")  # rows without training, in the order of tables


@dataclass(frozen=True)
class Run:
    """One cell and what its folder holds; `state` is "open" when there is none yet."""

    cell: Cell
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
        return int(self.cell.values["seed"]), int(self.cell.values.get("fold") or 0)

    @property
    def epoch(self) -> int | None:
        """The epoch that was kept, counted from 1."""
        return None if self.selection is None else self.selection.epoch + 1

    def score(self, metric: str, row: str = "trained") -> float:
        """A test score; NaN where there is none."""
        found = self.result.score(row, metric) if self.result else None
        return math.nan if found is None else found.value

    def by_class(self, metric: str, row: str = "trained") -> "ByClass | None":
        """A test score class by class; None where it was not kept so."""
        kept = self.per_class
        if kept is None or kept.metric != metric:
            return None
        sums = kept.sums if row == "trained" else kept.baselines.get(row)
        if not sums:
            return None
        return ByClass(tuple(kept.classes), tuple(kept.counts), np.asarray(sums))

    def at(self, layer: str) -> "Run":
        """The same network read at another layer; no number where it was not judged there."""
        kept, found = self.per_class, self.result
        rows = None if kept is None else kept.layers.get(layer)
        if kept is None or found is None or rows is None:
            return replace(self, result=None, per_class=None)
        queries = sum(kept.counts)
        scores = {
            name: Row({kept.metric: Score(sum(sums) / queries)}) for name, sums in rows.items()
        }
        others = {name: sums for name, sums in rows.items() if name != "trained"}
        there = replace(kept, sums=rows["trained"], baselines=others, layers={})
        there_too = replace(found, scores=scores, gain=None, thirds=None)
        return replace(self, result=there_too, per_class=there)

    def curve(self, metric: str) -> list[float]:
        """The metric, or recall@1, on the classes to select on, of each epoch looked at."""
        return [scores.get(metric, scores["recall@1"]) for scores in self._looks]

    @cached_property
    def _looks(self) -> list[Scores]:
        """Of the rung that was kept, where there are several."""
        ladder = self.selection.ladder if self.selection else None
        kept = FIRST if ladder is None else ladder.kept
        folder = self.folder if kept == FIRST else self.folder / "rungs" / kept
        events = [e for e in journal.read(folder / "journal.jsonl") if isinstance(e, Epoch)]
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
        return [ON_TEST] * self.on_test + [said for said in lacking if said]

    def metrics(self) -> list[str]:
        """Every metric of any run in the order of the settings, the plan's first."""
        asked = configs.make(self.runs[0].cell.values).metrics if self.runs else []
        found = {metric for run in self.runs for metric in _metrics(run)}
        known = [m for m in asked if m in found] + sorted(found - set(asked))
        return [self.plan.metric, *(metric for metric in known if metric != self.plan.metric)]

    def methods(self) -> list[str]:
        """Those that were run, then those that are another's network read at another layer."""
        run = list(dict.fromkeys(run.cell.labels[self.plan.compared] for run in self.runs))
        return run + [f"{name}{AT}{layer}" for name in run for layer in self.plan.layers_of(name)]

    def experiments(self) -> list[str]:
        return list(dict.fromkeys(self.experiment(run) for run in self.runs))

    def experiment(self, run: Run) -> str:
        """The values of the factors that are not compared; a bare number with its factor."""
        rest = {k: v for k, v in run.cell.labels.items() if k != self.plan.compared}
        return ", ".join(f"{k} {v}" if v[:1].isdigit() else v for k, v in rest.items())

    def of(self, experiment: str, method: str) -> list[Run]:
        own = [run for run in self.runs if self.experiment(run) == experiment]
        found = [run for run in own if run.cell.labels[self.plan.compared] == method]
        if found:
            return found
        name, _, layer = method.rpartition(AT)
        return [run.at(layer) for run in own if run.cell.labels[self.plan.compared] == name]

    def comparisons(self) -> "list[Compared]":
        """Each method against the best of its experiment, or the plan's reference."""
        from unseen.studies.gates import comparisons  # noqa: PLC0415 - made of results

        return comparisons(self)

    def rows(self) -> list[Json]:
        """One flat row per run: labels, seed, fold, state, folder, kept epoch, scores in 0..1."""
        return [
            run.cell.labels
            | run.cell.parameters
            | {"seed": run.replicate[0], "fold": run.replicate[1], "state": run.state}
            | {"folder": str(run.folder), "seconds": run.seconds, "epoch": run.epoch}
            | {metric: run.score(metric) for metric in self.metrics()}
            for run in self.runs
        ]


@dataclass(frozen=True)
class Standing:
    """A method (or a baseline) in an experiment."""

    experiment: str
    method: str
    scores: dict[str, Spread]  # by metric; empty when every run failed
    done: int
    failed: int
    planned: int
    is_best: bool = False
    is_baseline: bool = False
    tuning_runs: int = 0


def read(out: Path) -> Results:
    """The results in a study folder."""
    if not (out / "study.toml").exists():
        near = near_path(out) or ". `unseen study run` makes one."
        raise ValueError(f"{out} is no study: it has no study.toml{near}")
    plan = plans.load(checked(out, "study.toml", REMEDY))
    outcomes = {}
    for variant in plan.variants():
        for cell in search_cells(plan, variant):
            run = _read_run(out, cell)
            if run.state != "open":
                value = math.nan if run.selection is None else run.selection.value
                outcomes[cell.key] = Outcome(run.state, value, run.parameters)
    cells = known_cells(plan, outcomes)
    runs = [_read_run(out, cell) for cell in cells]
    return Results(
        plan,
        out,
        tuple(run for run in runs if run.cell.stage == "final"),
        tuple(run for run in runs if run.cell.stage == "search"),
    )


def standings(results: Results) -> list[Standing]:
    """Methods of every experiment, best first, then the baselines they must beat."""
    rows: list[Standing] = []
    for experiment in results.experiments():
        groups = {method: results.of(experiment, method) for method in results.methods()}
        groups = {method: runs for method, runs in groups.items() if runs}
        rows += _ranked(results, experiment, groups)
        rows += _baselines(results, experiment, [run for runs in groups.values() for run in runs])
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
        searched = [run for run in results.searches if run.cell.labels == runs[0].cell.labels]
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
            )
        )
    return rows


def effect(
    first: Sequence[Run], second: Sequence[Run], metric: str, level: float = 0.95
) -> Effect | None:
    """What the second runs add to the first, paired by seed and fold; None without a pair."""
    others = {run.replicate: run for run in second if run.state == "done"}
    pairs = [
        (run, others[run.replicate])
        for run in first
        if run.state == "done" and run.replicate in others
    ]
    scores = [(one.score(metric), two.score(metric)) for one, two in pairs]
    return _effect([(a.by_class(metric), b.by_class(metric)) for a, b in pairs], scores, level)


def gain(runs: Sequence[Run], row: str, metric: str) -> Effect | None:
    """What the runs have over one of their rows without training."""
    done = [run for run in runs if run.state == "done"]
    scores = [(run.score(metric, row), run.score(metric)) for run in done]
    return _effect([(run.by_class(metric, row), run.by_class(metric)) for run in done], scores)


def _effect(
    pairs: Sequence[tuple[ByClass | None, ByClass | None]],
    scores: Sequence[tuple[float, float]],
    level: float = 0.95,
) -> Effect | None:
    """Over seeds and classes; over seeds alone where scores are not known by the same classes."""
    if not scores:
        return None
    tables = [(a, b) for a, b in pairs if a is not None and b is not None]
    asked = {(each.classes, each.counts) for pair in tables for each in pair}
    if len(tables) < len(pairs) or len(asked) != 1:
        return crossed([[after - before] for before, after in scores], level=level)
    ((_, counts),) = asked
    return crossed([(b.sums - a.sums) / counts for a, b in tables], counts, level)


def _baselines(results: Results, experiment: str, runs: list[Run]) -> list[Standing]:
    """Untrained networks and raw inputs: once for each seed and fold."""
    once: dict[tuple[str, tuple[int, int]], Run] = {}
    for run in runs:
        for row in run.result.scores if run.result else ():
            if row in BASELINES:
                once.setdefault((row, run.replicate), run)
    rows = []
    for row in sorted({name for name, _ in once}, key=BASELINES.index):
        measured = [run for (name, _), run in once.items() if name == row]
        scores = _spreads(measured, results.metrics(), row)
        count = len(measured)
        rows.append(Standing(experiment, row, scores, count, 0, count, is_baseline=True))
    return rows


def _spreads(runs: list[Run], metrics: list[str], row: str = "trained") -> dict[str, Spread]:
    values = {metric: [run.score(metric, row) for run in runs] for metric in metrics}
    known = {m: [v for v in found if not math.isnan(v)] for m, found in values.items()}
    return {metric: over_seeds(found) for metric, found in known.items() if found}


def _metrics(run: Run) -> Sequence[str]:
    trained = run.result.scores.get("trained") if run.result else None
    return [] if trained is None else list(trained.metrics)


def _read_run(out: Path, cell: Cell) -> Run:
    folder = out / "runs" / cell.name
    state = _file(folder, STATE, State)
    if state is None:
        return Run(cell, folder, "open")
    stored_cell = _file(folder, CELL, StoredCell)
    return Run(
        cell,
        folder,
        state.state,
        state.error,
        state.seconds,
        _file(folder, result.FILE, Result),
        _file(folder, selection.FILE, Selection),
        _file(folder, PER_CLASS, PerClass),
        stored_cell.parameters if stored_cell else None,
    )


def _file(folder: Path, name: str, kind: type[T]) -> T | None:
    """None for one that was never written."""
    if not (folder / name).exists() and not must_exist(folder, name):
        return None
    text = checked(folder, name, REMEDY).read_text()
    return stored.parsed(kind, text, str(folder / name), f"delete it; {REMEDY}")

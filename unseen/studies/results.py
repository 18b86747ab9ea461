"""What a study found, read from its run folders alone.

    results = read(Path("studies/losses"))
    results.rows()        one dict per run: labels, seed, state, every metric
    standings(results)    one row per method and experiment: mean and spread
    results.comparisons() each method against the best, with its gates and verdict: see `gates.py`

A run that failed is a row that says so.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unseen import config as configs
from unseen.names import near_path
from unseen.reports.tables import ON_TEST, incomplete
from unseen.rungs import FIRST
from unseen.statistics import Effect, Spread, crossed, over_seeds
from unseen.studies import plan as plans
from unseen.studies.plan import Cell, Plan
from unseen.studies.search import Outcome, known_cells, search_cells
from unseen.training import journal
from unseen.training.checksums import checked, must_exist
from unseen.training.events import Epoch, Scores

if TYPE_CHECKING:
    from unseen.studies.gates import Compared

Json = dict[str, Any]
REMEDY = "`unseen study run`, given again, restores it from the study's storage"
MUST_BEAT = ("untrained", "principal")  # see `gates.py`
BASELINES = (*MUST_BEAT, "pixels", "features")  # rows without training, in the order of tables


@dataclass(frozen=True)
class Run:
    """One cell and what its folder holds; `state` is "open" when there is none yet."""

    cell: Cell
    folder: Path
    state: str
    error: str = ""
    seconds: float = math.nan
    result: Json | None = None
    selection: Json | None = None
    per_class: Json | None = None
    parameters: Json | None = None

    @property
    def replicate(self) -> tuple[int, int]:
        """Seed and fold: what runs of different methods are paired by."""
        return int(self.cell.values["seed"]), int(self.cell.values.get("fold") or 0)

    @property
    def epoch(self) -> int | None:
        """The epoch that was kept, counted from 1."""
        epoch = (self.selection or {}).get("epoch")
        return None if epoch is None else int(epoch) + 1

    def score(self, metric: str, row: str = "trained") -> float:
        """A test score; NaN where there is none."""
        scores = (self.result or {}).get("scores", {})
        value = scores.get(row, {}).get("metrics", {}).get(metric, {}).get("value")
        return math.nan if value is None else float(value)

    def by_class(self, metric: str, row: str = "trained") -> "ByClass | None":
        """A test score class by class; None where it was not kept so."""
        told = self.per_class or {}
        sums = told.get("sums") if row == "trained" else told.get("baselines", {}).get(row)
        if not sums or told["metric"] != metric:
            return None
        return ByClass(tuple(told["classes"]), tuple(told["counts"]), np.asarray(sums))

    def curve(self, metric: str) -> list[float]:
        """The metric, or recall@1, on the classes to select on, of each epoch looked at."""
        return [scores.get(metric, scores["recall@1"]) for scores in self._looks]

    @cached_property
    def _looks(self) -> list[Scores]:
        """Of the rung that was kept, where there are several."""
        kept = (self.selection or {}).get("ladder", {}).get("kept", FIRST)
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
        return any((run.selection or {}).get("on") == "test" for run in everything)

    @property
    def warnings(self) -> list[str]:
        """What every table and page of it must say: chosen on test classes, data that lack some."""
        lacking = {incomplete(run.result): None for run in self.runs if run.result}
        return [ON_TEST] * self.on_test + [said for said in lacking if said]

    def metrics(self) -> list[str]:
        """Every metric of any run in the order of the settings, the plan's first."""
        asked = configs.make(self.runs[0].cell.values).metrics if self.runs else []
        found = {metric for run in self.runs for metric in _scores(run).get("metrics", {})}
        known = [m for m in asked if m in found] + sorted(found - set(asked))
        return [self.plan.metric, *(metric for metric in known if metric != self.plan.metric)]

    def methods(self) -> list[str]:
        return list(dict.fromkeys(run.cell.labels[self.plan.compared] for run in self.runs))

    def experiments(self) -> list[str]:
        return list(dict.fromkeys(self.experiment(run) for run in self.runs))

    def experiment(self, run: Run) -> str:
        """The values of the factors that are not compared; a bare number with its factor."""
        rest = {k: v for k, v in run.cell.labels.items() if k != self.plan.compared}
        return ", ".join(f"{k} {v}" if v[:1].isdigit() else v for k, v in rest.items())

    def of(self, experiment: str, method: str) -> list[Run]:
        return [
            run
            for run in self.runs
            if self.experiment(run) == experiment and run.cell.labels[self.plan.compared] == method
        ]

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
            if run.state in ("done", "failed", "pruned"):
                value = float((run.selection or {}).get("value", math.nan))
                state: Any = run.state
                outcomes[cell.key] = Outcome(state, value, run.parameters)
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
        for row in (run.result or {}).get("scores", {}):
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


def _scores(run: Run) -> Json:
    scores: Json = (run.result or {}).get("scores", {}).get("trained", {})
    return scores


def _read_run(out: Path, cell: Cell) -> Run:
    folder = out / "runs" / cell.name
    state = _json(folder / "state.json")
    if state is None:
        return Run(cell, folder, "open")
    stored = _json(folder / "cell.json") or {}
    return Run(
        cell,
        folder,
        state["state"],
        state["error"],
        state["seconds"],
        _json(folder / "result.json"),
        _json(folder / "selection.json"),
        _json(folder / "per_class.json"),
        stored.get("parameters"),
    )


def _json(file: Path) -> Json | None:
    """None for one that was never written."""
    if not file.exists() and not must_exist(file.parent, file.name):
        return None
    content: Json = json.loads(checked(file.parent, file.name, REMEDY).read_text())
    return content

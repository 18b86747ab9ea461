"""What goes with recall@1 over objectives: other metrics, and measures of the training embeddings.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, figures 4 and 5
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, mean_of, number
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, of_correlation
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan
from unseen.reproductions.roth.revisit_figures import METRIC_CORRELATION, SPACE_CORRELATION
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import by_method, distances, of_runs
from unseen.studies import study_figures
from unseen.studies.correlation import Correlation as Pearson
from unseen.studies.correlation import pearson
from unseen.studies.findings import Section
from unseen.studies.results import Results
from unseen.studies.study_figures import Drawn
from unseen.studies.study_file import Plan
from unseen.studies.validity_checks import MethodRuns

R1 = "recall@1"
METRICS = (R1, "recall@2", "recall@4", "nmi", "f1", "revisit_map")
TITLES = {"f1": "F1", "revisit_map": "mAP"}
MEASURES = {
    "intra": "distance inside classes",
    "inter": "distance between classes",
    "ratio": "inside over between",
    "intra_printed": "Euclidean distance inside classes",
    "inter_printed": "Euclidean distance between plain class means",
    "ratio_printed": "inside over between, Euclidean",
    "rho": "spectral decay rho",
}
PAIRS = {"R07": (R1, "nmi"), "R08": (R1, "revisit_map"), "R09": ("nmi", "f1"),
         "R10": ("nmi", "revisit_map")}  # fmt: skip
SPACE = {"R11": "rho", "R12": "ratio", "R13": "intra", "R14": "inter"}
Values = dict[str, dict[str, float]]  # metric or measure -> objective -> mean over its seeds


class Correlation(PublishedStudy):
    source = "Roth et al. 2020, figures 4 and 5 (18 objectives without the switch)"
    shows = "how metrics, and measures of the training embeddings, go with recall@1"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask)]

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        return of_runs(_plain(results["objectives"]).runs, distances, progress)

    def claims(self, evidence: Evidence) -> list[Claim]:
        result = _plain(evidence.results["objectives"])
        metrics, space = _metrics(result), _measures(result, evidence.measured)
        printed = METRIC_CORRELATION.get(evidence.data, {})
        other = SPACE_CORRELATION.get(evidence.data, {})
        sides = [MethodRuns(result, "", name) for name in result.methods()]

        def finding(of: str, r: Pearson, published: float | None, expected: int = 1) -> Finding:
            known = math.nan if published is None else published
            return of_correlation(of, (r.r, r.low, r.high), sides, known, expected)

        claims = [
            Claim(name, [finding(" and ".join(map(_title, pair)), _correlated(metrics, *pair),
                                 printed.get(pair))], "r")
            for name, pair in PAIRS.items()
        ]  # fmt: skip
        recall = {R1: metrics[R1]}
        claims += [
            Claim(name, [finding(MEASURES[each], _correlated(space | recall, each, R1),
                                 other.get(each), -1 if each == "rho" else 1)], "r")
            for name, each in SPACE.items()
        ]  # fmt: skip
        return claims

    def sections(self, evidence: Evidence) -> list[Section]:
        ask, result = evidence.ask, _plain(evidence.results["objectives"])
        metrics, space = _metrics(result), _measures(result, evidence.measured)
        if len(space["rho"]) < 4:
            few = ["Too few objectives have finished: nothing to correlate."]
            return [Section("Training embeddings and recall", few),
                    Section("Metrics go together", few)]  # fmt: skip
        return [_space_section(space, metrics, ask), _metrics_section(metrics, ask)]


def _plain(results: Results) -> Results:
    """Runs without the switch."""
    names, compared = set(objectives.objectives()), results.plan.compared
    runs = (run for run in results.runs if run.planned.labels[compared] in names)
    return Results(results.plan, results.out, tuple(runs), results.searches)


def _metrics(results: Results) -> Values:
    return {
        metric: {m: 100 * mean_of(results.of("", m), metric) for m in results.methods()}
        for metric in METRICS
    }


def _measures(results: Results, measured: dict[str, Any]) -> Values:
    return {
        name: {m: float(np.mean(v)) for m, v in by_method(results, measured, name).items()}
        for name in MEASURES
    }


def _correlated(values: Values, one: str, other: str) -> Pearson:
    names = values[one]
    return pearson([values[one][n] for n in names], [values[other].get(n, math.nan) for n in names])


def _title(metric: str) -> str:
    return TITLES.get(metric, metric_title(metric))


def _r_text(outcome: Pearson) -> str:
    if math.isnan(outcome.r):
        return "–"
    return f"{outcome.r:.2f}" + (
        "" if math.isnan(outcome.low) else f" ({outcome.low:.2f} … {outcome.high:.2f})"
    )


def _metrics_section(metrics: Values, ask: Ask) -> Section:
    """Figure 4: printed values, and the same computed from their tables."""
    theirs, printed = (
        objectives.published(ask.published_data),
        METRIC_CORRELATION.get(ask.published_data, {}),
    )
    again = {m: {o: theirs.get(o, {}).get(m, math.nan) for o in metrics[R1]} for m in METRICS}
    rows = []
    for pair in itertools.combinations(METRICS, 2):
        row = [" and ".join(map(_title, pair)), _r_text(_correlated(metrics, *pair))]
        if printed:
            row += [number(printed.get(pair), 2), number(_correlated(again, *pair).r, 2)]
        rows.append(row)
    heads = ["metrics", "ours, r", *["published", "from their tables"] * bool(printed)]
    caption = (
        f"Pearson's r over {len(metrics[R1])} objectives, each the mean over its seeds, with the "
        "95 % interval by Fisher's transform."
    )
    measures = {_title(metric): list(values.values()) for metric, values in metrics.items()}
    figure = drawn("metric_correlation", "Pearson's r of metrics over objectives, ours.",
                   lambda: study_figures.correlation_figure(measures))  # fmt: skip
    return Section("Metrics go together", [], [Table(heads, rows, caption)], [figure])


def _space_section(space: Values, metrics: Values, ask: Ask) -> Section:
    """Figure 5."""
    theirs = SPACE_CORRELATION.get(ask.published_data, {})
    rows, figures = [], []
    for name, title in MEASURES.items():
        outcome = _correlated(space | {R1: metrics[R1]}, name, R1)
        rows.append([title, _r_text(outcome), *[number(theirs.get(name), 2)] * bool(theirs)])
        figures.append(_scatter(f"space_{name}", space[name], metrics[R1], title))
    heads = ["measure of training embeddings", "ours, r with R@1", *["published"] * bool(theirs)]
    return Section("Training embeddings and recall", [], [Table(heads, rows)], figures)


def _scatter(name: str, x: Mapping[str, float], y: Mapping[str, float], title: str) -> Drawn:
    caption = (
        f"Recall@1 on test classes against {title} of the training embeddings, a point for each "
        "objective, mean over seeds, with the line of least squares."
    )
    return drawn(name, caption, lambda: study_figures.scatter(x, y, title, "R@1, %"))

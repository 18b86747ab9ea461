"""Seven ways of making batches, compared over objectives and metrics.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, section 4.3, figure 3,
         tables 7 to 9
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from unseen.core.statistics import over_seeds
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    drawn,
    missing_text,
    number,
    spread_text,
)
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, against, gap, of_seeds
from unseen.reproductions.numbers import rows_of
from unseen.reproductions.published_study import Evidence, PublishedStudy
from unseen.reproductions.request import METRICS, Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import INCONSISTENT
from unseen.reproductions.source_values import ROTH
from unseen.studies.findings import Section
from unseen.studies.relative_performance import relative
from unseen.studies.results import Results
from unseen.studies.study_figures import boxes
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import MethodRuns

SAMPLERS: dict[str, Values] = {
    "SPC-2": {"name": "m_per_class", "preset": "revisit", "per_class": 2},
    "SPC-4": {"name": "m_per_class", "preset": "revisit", "per_class": 4},
    "SPC-8": {"name": "m_per_class", "preset": "revisit", "per_class": 8},
    "SPC-R": {"name": "random_with_pair", "preset": "revisit"},
    "DDM": {"name": "distance_matching", "preset": "revisit"},
    "GC": {"name": "greedy_coreset", "preset": "revisit"},
    "FRD": {"name": "frechet_matching", "preset": "revisit"},
}
OBJECTIVES = {  # their name in the tables of samplers -> in those of objectives
    "Margin (D)": "Margin (D, beta = 1.2)",
    "MultiSimilarity": "Multisimilarity",
    "NPair": "Npair",
    "Softmax": "Softmax",
    "Triplet (R)": "Triplet (R)",
    "Histogram": "Histogram",
    "ProxyNCA": "ProxyNCA",
}
QUICK = 4  # of the objectives


class Samplers(PublishedStudy):
    source = "Roth et al. 2020, section 4.3, figure 3, tables 7 to 9 (ResNet-50, 128-d, 5 seeds)"
    shows = "seven batch samplers by relative performance over objectives and metrics"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        known = objectives.objectives(ask.is_quick, ask.set_up_data)
        chosen = list(OBJECTIVES.items())[: QUICK if ask.is_quick else None]
        factors = {
            "sampler": {name: {"sampler": sampler} for name, sampler in SAMPLERS.items()},
            "objective": {name: known[own] for name, own in chosen},
        }
        about = "The batch samplers of Roth et al. 2020."
        seeds = 1 if ask.is_quick else 5
        return [ask.plan("samplers", about, factors, {}, seeds, source=ROTH)]

    def claims(self, evidence: Evidence) -> list[Claim]:
        result = evidence.results["samplers"]
        theirs = published(evidence.data, result.experiments())
        claims = [
            Claim(name, [_ahead(result, theirs, first, second) for second in rest], "% relative")
            for name, first, rest in (
                ("R43", "SPC-2", ["SPC-4"]),
                ("R44", "FRD", ["SPC-4"]),
                ("R45", "SPC-2", ["FRD", "DDM", "GC"]),
            )
        ]
        if "NPair" not in result.experiments():
            return claims
        known = {r["sampler"]: r for r in theirs if r["objective"] == "NPair"}
        steps = [("SPC-2", "SPC-4"), ("SPC-4", "SPC-8")]
        falls = [
            against(result, a, b, gap(known, a, b), "", "NPair", expected=-1) for a, b in steps
        ]
        return [*claims, Claim("R48", falls)]

    def sections(self, evidence: Evidence) -> list[Section]:
        result = evidence.results["samplers"]
        theirs = published(evidence.data, result.experiments())
        tables = [_score_table(result, theirs, metric) for metric in METRICS]
        return [_relative(result, theirs), Section("By metric", [INCONSISTENT], tables)]


def published(data: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of objective, sampler and metrics in percent, for some of the objectives."""
    return [
        {"objective": row["approach"], "sampler": row["sampler"]}
        | {metric: row[column] for metric, column in objectives.COLUMNS.items()}
        for row in rows_of("revisit_samplers", data)
        if row["approach"] in names
    ]


def _relative(results: Results, theirs: Sequence[dict[str, Any]]) -> Section:
    done = [row for row in results.rows() if row["state"] == "done"]
    fixed = ("objective", "seed")
    ours = relative(done, setup="sampler", fixed=fixed, metrics=METRICS)
    other = relative(theirs, setup="sampler", fixed=("objective",), metrics=METRICS)
    if len(ours) < 2:
        return Section("Relative performance", ["Fewer than two samplers have finished runs."])
    rows = [[name, *[_ratio(each.get(name)) for each in (ours, other)]] for name in SAMPLERS]
    about = "Score over that of the best sampler of the same objective and metric; 1 is best:"
    figures = [
        drawn(f"relative_performance{suffix}", f"{about} {whose}.", partial(boxes, each))
        for suffix, whose, each in (("", "ours", ours), ("_published", "published", other))
        if each
    ]
    caption = "Mean over objectives, metrics and seeds, with the middle half in brackets, in %."
    shown = [Table(["sampler", "ours", "published"], rows, caption)]
    return Section("Relative performance", [], shown, figures)


def _ahead(
    results: Results, theirs: Sequence[Mapping[str, Any]], first: str, second: str
) -> Finding:
    """What a sampler has over another, mean over objectives, seed by seed."""
    done = [row for row in results.rows() if row["state"] == "done"]
    names = results.experiments()
    values = {
        (seed, 0): _gain([row for row in done if row["seed"] == seed], names, first, second)
        for seed in dict.fromkeys(row["seed"] for row in done)
    }
    sides = [MethodRuns(results, name, each) for each in (second, first) for name in names]
    return of_seeds(f"{first} over {second}", values, sides, _gain(theirs, names, first, second))


def _gain(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], first: str, second: str
) -> float:
    """In relative performance, percent, mean over metrics and objectives; NaN where one lacks."""
    changes = []
    for name in names:
        some = [row for row in rows if row["objective"] == name]
        ratios = relative(some, setup="sampler", fixed=(), metrics=METRICS)
        sides = [np.mean(ratios.get(each, [math.nan])) for each in (first, second)]
        changes.append(100 * (sides[0] - sides[1]))
    return float(np.mean(changes)) if changes else math.nan


def _ratio(values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    low, high = np.percentile(values, [25, 75])
    return f"{100 * float(np.mean(values)):.1f} ({100 * low:.1f} … {100 * high:.1f})"


def _score_table(results: Results, theirs: Sequence[dict[str, Any]], metric: str) -> Table:
    other = {(row["objective"], row["sampler"]): row[metric] for row in theirs}
    heads, rows = ["sampler"], []
    for objective in results.experiments():
        heads += [objective, "published"]
    for name in SAMPLERS:
        cells = [name]
        for objective in results.experiments():
            runs = results.of(objective, name)
            scores = [run.score(metric) for run in runs if run.state == "done"]
            ours = spread_text(over_seeds(scores)) if scores else missing_text(runs)
            cells += [ours, number(other.get((objective, name)), 2)]
        rows.append(cells)
    title = metric_title(metric)
    caption = f"{title} in %, ± half of its 95 % interval over seeds where there are several."
    return Table(heads, rows, caption)

"""Every objective and miner of Roth et al. 2020, with and without the rho switch, ranked.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, tables 2 and 4 to 6, figure 1
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    above_start_message,
    bars_by_method,
    baselines_message,
    drawn,
    number,
    score_table,
)
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, against, gap
from unseen.reproductions.numbers import rows_of
from unseen.reproductions.published_study import Evidence, PublishedStudy
from unseen.reproductions.request import METRICS, Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.source_values import ROTH
from unseen.studies.findings import Section
from unseen.studies.results import Results, standings
from unseen.studies.study_file import Plan

MARGIN, SMALL = "Margin (D, beta = 1.2)", "Margin (D, beta = 0.6)"
MULTI, TRIPLET = "Multisimilarity", "Triplet (D)"
CLASSIFICATION = ("ArcFace", "Softmax", "SoftTriple", "ProxyNCA", "Npair")  # and NCE
INCONSISTENT = (  # with the same loss and two images of a class
    "The source contradicts itself: tables 4 to 6 and tables 7 to 9 print other values for the "
    "same loss with SPC-2, for instance histogram on Cars196 76.47 and 67.24."
)


class Losses(PublishedStudy):
    source = "Roth et al. 2020, tables 2 and 4 to 6, figure 1 (ResNet-50, 128-d, 5 seeds)"
    shows = "all objectives and miners, by five metrics, with the best epoch"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask)]

    def claims(self, evidence: Evidence) -> list[Claim]:
        result = evidence.results["objectives"]
        theirs = objectives.published(evidence.data)
        names = [name for name in result.methods() if not name.startswith("R-")]
        ranking = [name for name in names if name not in CLASSIFICATION]
        rest = [name for name in names if name not in (MARGIN, MULTI)]
        mined = [f"Triplet ({letter})" for letter in "RSH"]
        best = [_best_against(result, CLASSIFICATION, ranking, theirs)]
        two = [_best_against(result, rest, [name], theirs) for name in (MARGIN, MULTI)]
        mining = [against(result, m, TRIPLET, gap(theirs, m, TRIPLET)) for m in mined]
        start = [against(result, SMALL, MARGIN, gap(theirs, SMALL, MARGIN))]
        named = {"R03": best, "R04": two, "R05": mining, "R06": start}
        return [Claim(name, findings) for name, findings in named.items()]

    def sections(self, evidence: Evidence) -> list[Section]:
        result, theirs = evidence.results["objectives"], objectives.published(evidence.data)
        whose = ", ours and published." if theirs.get(MARGIN) else ", ours."
        caption = f"{metric_title('recall@1')} of every objective{whose}"
        figures = []
        if any(run.state == "done" for run in result.runs):
            draw = partial(bars_by_method, result, theirs, "recall@1")
            figures = [drawn("objectives", caption, draw)]
        sentences = [
            *above_start_message(result),
            *baselines_message(result),
            INCONSISTENT,
        ]
        return [
            Section("Objectives", sentences, [score_table(result, theirs, METRICS)], figures),
            _best_epochs(result, evidence.data),
        ]


def objectives_plan(ask: Ask) -> Plan:
    """All objectives with and without the switch; `rho` and `correlation` look at the same runs."""
    values = objectives.objectives(ask.is_quick, ask.set_up_data)
    switched = objectives.switched(ask.set_up_data, ask.is_quick)
    values |= {name: settings for name, (_, settings) in switched.items()}
    about = "Every objective of Roth et al. 2020."
    # `correlation` asks for recall@4
    config = {"metrics": [*METRICS, "recall@4"]}
    seeds = 2 if ask.is_quick else 5
    return ask.plan("objectives", about, {"objective": values}, config, seeds, source=ROTH)


def _best_against(
    result: Results,
    others: Sequence[str],
    methods: Sequence[str],
    theirs: Mapping[str, Mapping[str, float]],
) -> Finding:
    """The best of some methods against the best of others; the published ones by their own best."""
    ranked = [row.method for row in standings(result) if not row.is_baseline and row.scores]
    ours = [next((n for n in ranked if n in some), "") for some in (methods, others)]

    def best(some: Sequence[str]) -> float:
        return max((theirs.get(n, {}).get("recall@1", math.nan) for n in some if n in theirs),
                   default=math.nan)  # fmt: skip

    published = float(best(methods)) - float(best(others))
    return against(result, ours[1], ours[0], published, f"{ours[0]} against {ours[1]}, picked as "
                   "the best")  # fmt: skip


def _best_epochs(results: Results, data: str) -> Section:
    theirs = {
        objectives.tidy(str(row["approach"])): row["best_epoch"]
        for row in rows_of("revisit_objectives", data)
    }
    rows = []
    for method in results.methods():
        epochs = [run.epoch for run in results.of("", method) if run.epoch is not None]
        ours = float(np.mean(epochs)) if epochs else None
        rows.append([method, number(ours), number(theirs.get(method))])
    epochs = [run.epoch for run in results.runs if run.epoch is not None]
    message = "No run has left its start."
    if epochs:
        ends = f"between {min(epochs)} and {max(epochs)}"
        message = f"Runs select epoch {np.mean(epochs):.1f} on average, {ends}."
    heads = ["objective", "selected epoch", "published, ± its deviation"]
    return Section("Best epoch", [message], [Table(heads, rows)])

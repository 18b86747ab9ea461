"""Every objective and miner of Roth et al. 2020, with and without the rho switch, ranked.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, tables 2 and 4 to 6, figure 1
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from unseen.reports.score_tables import metric_title, row_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    agreement,
    drawn,
    number,
    points_figure,
    score_table,
)
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import METRICS, Ask, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.source_values import ROTH
from unseen.studies.findings import Section
from unseen.studies.results import Results, standings
from unseen.studies.study_file import Plan


class Losses(PublishedStudy):
    source = "Roth et al. 2020, tables 2 and 4 to 6, figure 1 (ResNet-50, 128-d, 5 seeds)"
    shows = "all objectives and miners, by five metrics, with the best epoch"
    source_values = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask)]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result, theirs = results["objectives"], objectives.published(ask.published_data)
        rows = [row for row in standings(result) if not row.is_baseline and row.scores]
        scores = [100 * row.scores["recall@1"].mean for row in rows]
        best = (
            f"{rows[0].method} is highest of {len(rows)} objectives with {scores[0]:.1f} % "
            f"recall@1; the lowest has {scores[-1]:.1f} %, the middle half lies within "
            f"{np.percentile(scores, 75) - np.percentile(scores, 25):.1f} points."
        )
        figure = drawn(
            "objectives",
            f"{metric_title('recall@1')} of every objective, ours and published.",
            lambda: points_figure(result, theirs, "recall@1"),
        )
        return [
            Section(
                "Objectives",
                [
                    best,
                    *_baselines_message(result),
                    *[agreement(result, theirs, metric) for metric in ("recall@1", "nmi")],
                ],
                [score_table(result, theirs, METRICS)],
                [figure],
            ),
            Section("Best epoch", [_epochs_message(result)], [_epochs(result, ask)]),
        ]

    def differences(self, ask: Ask) -> list[str]:
        return set_up_differences(ask)


def objectives_plan(ask: Ask) -> Plan:
    """All objectives with and without the switch; `rho` and `correlation` look at the same runs."""
    values = objectives.objectives(ask.is_quick)
    switched = objectives.switched(ask.set_up_data, ask.is_quick)
    values |= {name: settings for name, (_, settings) in switched.items()}
    about = "Every objective of Roth et al. 2020."
    # `correlation` asks for recall@4
    config = {"metrics": [*METRICS, "recall@4"]}
    seeds = 2 if ask.is_quick else 5
    return ask.plan("objectives", about, {"objective": values}, config, seeds, source=ROTH)


def set_up_differences(ask: Ask) -> list[str]:
    """What all presets from this source have in common."""
    rates = f"Class parameters learn at {objectives.CLASS_LR}; theirs for 150 epochs are lower."
    return [
        f"Data: {ask.data}; the published column is of {ask.published_title}.",
        *([rates] if ask.is_quick else []),
        "mAP is theirs as released (`revisit_map`), not as described.",
    ]


def _baselines_message(results: Results) -> list[str]:
    """What the objectives must beat, and how many do."""
    rows = [row for row in standings(results) if "recall@1" in row.scores]
    scores = [row.scores["recall@1"].mean for row in rows if not row.is_baseline]
    sentences = []
    for row in rows:
        value = row.scores["recall@1"].mean
        if row.is_baseline:
            above = sum(score > value for score in scores)
            title = row_title(row.method).capitalize()
            sentences.append(f"{title}: {100 * value:.1f} %; {above} objectives are above.")
    return sentences


def _epochs(results: Results, ask: Ask) -> Table:
    theirs = {
        objectives.tidy(str(row["approach"])): row["best_epoch"]
        for row in table("revisit_objectives")
        if row["dataset"] == ask.published_data
    }
    rows = []
    for method in results.methods():
        epochs = [run.epoch for run in results.of("", method) if run.epoch is not None]
        value = theirs.get(method)
        shown = number(value if isinstance(value, float) else None)
        rows.append([method, number(float(np.mean(epochs)) if epochs else None), shown])
    return Table(["objective", "kept epoch", "published, of 150"], rows)


def _epochs_message(results: Results) -> str:
    epochs = [run.epoch for run in results.runs if run.epoch is not None]
    ends = f"between {min(epochs)} and {max(epochs)}"
    return f"Runs keep epoch {np.mean(epochs):.1f} on average, {ends}."

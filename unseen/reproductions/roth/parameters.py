"""What a score owes to batch size, weight decay, dimension, preprocessing and architecture.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, section 4.2, figure 2,
         table 1
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, number, score_text
from unseen.reproductions.charts import Point, lines
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, mean_gain, versus, weighted
from unseen.reproductions.numbers import rows_of
from unseen.reproductions.published_study import Evidence, PublishedStudy
from unseen.reproductions.request import METRICS, Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.source_values import BN_INCEPTION, ROTH, available, without_weights
from unseen.studies.findings import Section
from unseen.studies.relative_performance import relative
from unseen.studies.results import Results
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import MethodRuns

R1 = "recall@1"
OBJECTIVES = (
    "Margin (D, beta = 1.2)", "Multisimilarity", "Triplet (D)", "Softmax", "Npair"
)  # fmt: skip
QUICK = 2  # of the objectives


@dataclass(frozen=True)
class Factor:
    """A setting and its values; `more` are those of the full budget only, `theirs` the source's own
    where its network is trained."""

    key: str
    title: str
    values: Sequence[Any]
    more: Sequence[Any] = ()
    needs_images: bool = False
    config: Values = field(default_factory=dict)
    theirs: Mapping[str, Values] = field(default_factory=dict)

    def plan(self, ask: Ask) -> Plan:
        chosen = OBJECTIVES[: QUICK if ask.is_quick else None]
        known = objectives.objectives(ask.is_quick, ask.set_up_data)
        is_theirs = bool(self.theirs) and ask.is_as_published
        values = sorted([*self.values, *(() if ask.is_quick else self.more)])
        factors = {
            self.key: available(self.theirs) if is_theirs else values,
            "objective": {name: known[name] for name in chosen},
        }
        about = f"{self.title} in the set-up of Roth et al. 2020."
        seeds = 1 if ask.is_quick else 5
        config = {} if is_theirs else self.config
        return ask.plan(f"by_{self.key}", about, factors, config, seeds, source=ROTH)


ARCHITECTURE = Factor(
    "backbone",
    "Architecture",
    ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"),
    needs_images=True,
    config={"weights": "imagenet", "freeze_until": "pooled", "cached_augmentations": 0},
    theirs={
        "googlenet": {"backbone": "googlenet", "image_size": 227},
        "bn_inception": {"backbone": "bn_inception"},
        "resnet50": {"backbone": "resnet50"},
    },
)
FACTORS = (
    Factor(
        "batch_size",
        "Batch size",
        (16, 32, 64, 112, 144),
    ),
    Factor(
        "weight_decay",
        "Weight decay",
        (0.0, 1e-5, 1e-4, 4e-4, 1e-3),
        config={"optimizer": {"name": "adam"}},  # theirs; in AdamW it hardly counts in few steps
    ),
    Factor(
        "embedding_size",
        "Dimension",
        (32, 128, 512, 1024),
        more=(16, 64, 256),
    ),
    Factor(
        "transform",
        "Preprocessing",
        ("adv", "base", "big", "red"),
        needs_images=True,
        config={"freeze_until": None, "image_size": "auto"},  # some show larger images
        theirs={
            "adv": {"transform": "adv"},
            "base": {"transform": "base"},
            "big": {"transform": "big", "image_size": 256},
            "red": {"transform": "red"},
        },
    ),
    ARCHITECTURE,
)


class Parameters(PublishedStudy):
    source = "Roth et al. 2020, section 4.2, figure 2, table 1 (five objectives)"
    shows = "scores by batch size, weight decay, dimension, preprocessing and architecture"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [factor.plan(ask) for factor in FACTORS if _is_run(factor, ask)]

    def claims(self, evidence: Evidence) -> list[Claim]:
        def pairs(key: str, other: str, method: str) -> dict[str, tuple[MethodRuns, MethodRuns]]:
            """By objective; none where the factor is not run."""
            result = evidence.results.get(f"by_{key}")
            return {
                name: (MethodRuns(result, name, other), MethodRuns(result, name, method))
                for name in (result.experiments() if result else ())
                if result is not None
            }

        def gains(key: str, other: str, method: str) -> list[Finding]:
            return [
                versus(*pair, of=f"{name}, {method} against {other}")
                for name, pair in pairs(key, other, method).items()
            ]

        levels = [
            mean_gain(f"gain from {a} to {b}, mean over objectives",
                      [*pairs("embedding_size", a, b).values()])
            for a, b in (("128", "512"), ("512", "1024"))
        ]  # fmt: skip
        return [
            Claim("R32", gains("batch_size", "16", "112")),
            Claim("R35", levels),
            Claim("R36", gains("transform", "base", "big")),
            Claim("R37", gains("transform", "red", "base")),
            Claim("R41", _untrained_findings(evidence)),
        ]

    def sections(self, evidence: Evidence) -> list[Section]:
        ask, sections = evidence.ask, []
        for factor in FACTORS:
            if _is_run(factor, ask):
                sections.append(_section(factor, evidence.results[f"by_{factor.key}"]))
            else:
                caption = f"{factor.title} needs images: {ask.data} holds features."
                sections.append(Section(factor.title, [caption]))
        sections[-1] = _with_untrained(sections[-1], evidence)
        return sections

    def differences(self, ask: Ask) -> list[str]:
        return without_weights(ARCHITECTURE.theirs) if ask.is_as_published else []


def _is_run(factor: Factor, ask: Ask) -> bool:
    return ask.has_images or not factor.needs_images


def _untrained_findings(evidence: Evidence) -> list[Finding]:
    """What BN-Inception has before training over the other networks, mean over objectives: each
    draws its head anew."""
    result = evidence.results.get(f"by_{ARCHITECTURE.key}")
    if result is None or BN_INCEPTION not in result.methods():
        return []
    printed, findings = _untrained(evidence.data), []
    for name in result.methods():
        if name != BN_INCEPTION:
            terms = [(sign / len(result.experiments()), MethodRuns(result, experiment, each), R1)
                     for experiment in result.experiments()
                     for sign, each in ((-1, name), (1, BN_INCEPTION))]  # fmt: skip
            known = printed.get(BN_INCEPTION, math.nan) - printed.get(name, math.nan)
            findings.append(weighted(f"over {name}, untrained", terms, known, row="untrained"))
    return findings


def _untrained(data: str) -> dict[str, float]:
    """Network -> percent, as published."""
    rows = rows_of("revisit_backbones_untrained", data)
    return {n: v for row in rows for n, v in row.items() if isinstance(v, float)}


def _section(factor: Factor, results: Results) -> Section:
    ratios = {name: _relative(results, name) for name in results.experiments()}
    rows = []
    for value in results.methods():
        cells = [value]
        for name, each in ratios.items():
            ratio = number(100 * each[value]) if value in each else "–"
            cells += [score_text(results.of(name, value), R1), ratio]
        rows.append(cells)
    heads = [head for name in ratios for head in (f"{name}, R@1 %", "relative %")]
    caption = "Relative: score over that of the best value, mean over the five metrics and seeds."
    series = {n: [Point(v, r) for v, r in each.items()] for n, each in ratios.items() if each}
    title = f"{factor.title}: relative performance over five metrics, a line for each objective."
    draw = partial(lines, series, factor.key, "score over that of the best value")
    figures = [drawn(factor.key, title, draw)] if series else []
    shown = [Table([factor.key, *heads], rows, caption)]
    return Section(factor.title, [], shown, figures)


def _relative(results: Results, objective: str) -> dict[str, float]:
    """Mean ratio to the best value, over metrics and seeds, in the order of the values."""
    key = results.plan.compared
    rows = [r for r in results.rows() if r["state"] == "done" and r["objective"] == objective]
    result = relative(rows, setup=key, fixed=("seed",), metrics=METRICS)
    return {v: float(np.mean(result[v])) for v in results.methods() if v in result}


def _with_untrained(section: Section, evidence: Evidence) -> Section:
    """Table 1: networks before training, ours where they were run, and the published ones."""
    result = evidence.results.get(f"by_{ARCHITECTURE.key}")
    rows = []
    for name in [] if result is None else result.methods():
        runs = [] if result is None else [
            run for each in result.experiments() for run in result.of(each, name)]  # fmt: skip
        starts = [run.score(R1, "untrained") for run in runs if run.state == "done"]
        rows.append([name, "ours", number(100 * float(np.mean(starts)) if starts else None)])
    rows += [[n, "published", number(value)] for n, value in _untrained(evidence.data).items()]
    caption = "ImageNet weights and a random linear layer."
    shown = Table(["network", "whose", "untrained, R@1 %"], rows, caption)
    return Section(section.title, section.result, [*section.tables, shown], section.figures)

"""The rho switch: what it adds to recall, by its chance, and what it does to the spectrum.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, section 5.1, figures 7, 8
         and 10, tables 2 and 4 to 6, supplement B
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from unseen.core.statistics import Effect
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    drawn,
    mean_of,
    number,
    score_text,
)
from unseen.reproductions.charts import Point, lines
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, against, changed, gap, selected_epoch
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan
from unseen.reproductions.roth.revisit_figures import RHO
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import (
    by_method,
    measured_value,
    of_runs,
    spectra,
    spectra_section,
)
from unseen.studies.findings import Section
from unseen.studies.results import Results, effect
from unseen.studies.study_figures import scatter
from unseen.studies.study_file import Plan
from unseen.studies.validity_checks import MethodRuns, effect_text

CURVE = "switch_chance"
CHANCES = (0.0, 0.125, 0.25, 0.375, 0.5)
METHOD = "Margin (D, beta = 0.6)"
R1 = "recall@1"
GAINS = {  # the claim on the switch of each objective
    "Contrastive (D)": "R16",
    "Margin (D, beta = 0.6)": "R17",
    "Margin (D, beta = 1.2)": "R18",
    "SNR (D)": "R19",
    "Triplet (D)": "R20",
}


class At(NamedTuple):
    """A published gain and the chance of a switch it was found at."""

    chance: float
    gain: float


class Rho(PublishedStudy):
    source = "Roth et al. 2020, section 5.1, figures 7, 8 and 10 (ResNet-50, 128-d, 5 seeds)"
    shows = "gains of the rho switch, recall by its chance, spectra with and without"
    origin = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask), chance_plan(ask)]

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        return of_runs(results["objectives"].runs, spectra, progress)

    def claims(self, evidence: Evidence) -> list[Claim]:
        result, curve = evidence.results["objectives"], evidence.results[CURVE]
        theirs, rho = objectives.published(evidence.data), RHO.get(evidence.data, {})
        pairs = _pairs(evidence.ask)

        def sides(plain: str) -> tuple[MethodRuns, MethodRuns]:
            return MethodRuns(result, "", plain), MethodRuns(result, "", pairs[plain])

        def lower(plain: str, name: str, published: float = math.nan) -> Finding:
            value = partial(measured_value, evidence.measured, name)
            return changed(plain, sides(plain), value, published, -1)

        gains = [
            Claim(GAINS[plain], [against(result, plain, name, gap(theirs, plain, name), plain)])
            for plain, name in pairs.items()
        ]
        printed = {p: rho.get(name, math.nan) - rho.get(p, math.nan) for p, name in pairs.items()}
        return [
            *gains,
            Claim("R23", [lower(plain, "rho", printed[plain]) for plain in pairs], "rho"),
            Claim("R24", [lower(plain, "classes") for plain in pairs],
                  "share of a class's first singular value"),
            Claim("R25", [against(curve, "0", f"{c:g}", of=f"chance {c:g}") for c in CHANCES if c]),
            Claim("R27", [changed(p, sides(p), selected_epoch) for p in pairs], "epochs"),
        ]  # fmt: skip

    def sections(self, evidence: Evidence) -> list[Section]:
        result, measured = evidence.results["objectives"], evidence.measured
        names, theirs = _pairs(evidence.ask), RHO.get(evidence.data, {})
        pairs = {plain: (result.of("", plain), result.of("", n)) for plain, n in names.items()}
        printed = {p: [theirs.get(p, math.nan), theirs.get(n, math.nan)] for p, n in names.items()}
        return [
            _scores(result, evidence),
            _chances(evidence.results[CURVE], evidence.ask),
            spectra_section(pairs, measured, printed if theirs else {}),
            _decay(result, measured),
        ]


def _pairs(ask: Ask) -> dict[str, str]:
    """Objective -> its name with the switch."""
    return {plain: name for name, (plain, _) in objectives.switched(ask.set_up_data).items()}


def chance_plan(ask: Ask) -> Plan:
    """Margin loss by the chance of a switch."""
    settings = objectives.objectives(ask.is_quick, ask.set_up_data)[METHOD]
    values = {f"{chance:g}": objectives.with_switch(settings, chance) for chance in CHANCES}
    about = f"{METHOD} of Roth et al. 2020 by the chance of a switch."
    seeds = 3 if ask.is_quick else 5
    return ask.plan(CURVE, about, {"chance": values}, {}, seeds, source=ROTH)


def _published_at(ask: Ask) -> At:
    """Their gain of the method of the curve, and the chance that they took on a data set."""
    ((name, (_, settings)),) = (
        (name, of) for name, of in objectives.switched(ask.set_up_data).items() if of[0] == METHOD
    )
    gain = gap(objectives.published(ask.published_data), METHOD, name)
    return At(float(settings["miner"]["switch"]), gain)


def _scores(results: Results, evidence: Evidence) -> Section:
    names = [name for pair in _pairs(evidence.ask).items() for name in pair]
    theirs = objectives.published(evidence.data)
    rows = [
        [n, score_text(results.of("", n), R1), number(theirs.get(n, {}).get(R1))] for n in names
    ]
    return Section("Gains", [], [Table(["objective", "R@1 %", "published"], rows)])


def _chances(results: Results, ask: Ask) -> Section:
    runs = {chance: results.of("", f"{chance:g}") for chance in CHANCES}
    plain = runs[0.0]
    result: dict[float, Effect] = {}
    rows = []
    for chance, others in runs.items():
        change = effect(plain, others, R1)
        if change is not None:
            result[chance] = change
        rows.append([f"{chance:g}", score_text(others, R1), effect_text(change) if chance else "–"])
    theirs = _published_at(ask)
    message = "No run without the switch has finished: there is nothing to compare with."
    if len(result) > 1:
        best = max((c for c in result if c), key=lambda c: result[c].value)
        message = (
            f"{METHOD} has {100 * mean_of(plain, R1):.1f} % without the switch; of the chances "
            f"tried {best:g} is highest with {effect_text(result[best])} points."
            + (
                ""
                if math.isnan(theirs.gain)
                else f" Published: {theirs.gain:+.2f} at {theirs.chance:g}."
            )
        )
    caption = "Gain over chance 0, paired by seed, with its 95 % interval over seeds and classes."
    table = Table(["chance", "R@1 %", "gain"], rows, caption)
    points = [Point(c, 100 * each.value, 100 * each.half) for c, each in result.items()]
    series = {"ours": points}
    if not math.isnan(theirs.gain):
        series["published"] = [Point(theirs.chance, theirs.gain)]
    figure = drawn(
        "chance",
        f"Recall@1 of {METHOD} by the chance of a switch, less that without it, with its 95 % "
        "interval over seeds and classes.",
        lambda: lines(series, "chance of a switch", "gain in recall@1, points", ["published"]),
    )
    return Section("By the chance of a switch", [message], [table], [figure] if result else [])


def _decay(results: Results, measured: dict[str, Any]) -> Section:
    """Supplement B."""
    decay = {m: float(np.mean(v)) for m, v in by_method(results, measured, "rho").items()}
    if len(decay) < 4:
        return Section("Decay and recall", ["Too few runs have finished to compare."])
    recall = {m: 100 * mean_of(results.of("", m), R1) for m in decay}
    figure = drawn(
        "decay",
        "Recall@1 on test classes against the spectral decay rho of the training embeddings, mean "
        "over seeds; names that begin with R- are with the switch.",
        lambda: scatter(decay, recall, "spectral decay rho (training classes)", "R@1, %"),
    )
    return Section("Decay and recall", [], [], [figure])

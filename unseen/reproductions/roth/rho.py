"""The rho switch: what it adds to recall, by its chance, and what it does to the spectrum.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, section 5.1, figures 7, 8
         and 10, tables 2 and 4 to 6, supplement B
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Effect, over_seeds
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    drawn,
    kept_message,
    mean_of,
    number,
    plain_text,
    score_text,
    without_kept_starts,
)
from unseen.reproductions.charts import logarithmic
from unseen.reproductions.claims import Claim, Finding, against, gap, mean_finding
from unseen.reproductions.numbered_points import OTHER, name_list, numbered_points
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan, set_up_differences
from unseen.reproductions.roth.revisit_figures import RHO
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import Measured, by_method, mean_spectrum, of_runs, spectra
from unseen.studies.findings import Section
from unseen.studies.results import Results, effect
from unseen.studies.study_figures import ACCENT, LINE, MUTED
from unseen.studies.study_file import Plan
from unseen.studies.validity_checks import effect_text

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
    answers = (*GAINS.values(), "R23", "R24", "R25", "R27")

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask), chance_plan(ask)]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        return of_runs(results["objectives"].runs, spectra, progress)

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        result = without_kept_starts(results["objectives"])
        theirs = objectives.published(ask.published_data)
        pairs = {plain: name for name, (plain, _) in objectives.switched(ask.set_up_data).items()}
        curve = results[CURVE]
        values = [against(curve, "0", f"{c:g}", of=f"chance {c:g}") for c in CHANCES if c]
        published = RHO.get(ask.published_data, {})
        claims = [
            Claim(GAINS[plain], [against(result, plain, name, gap(theirs, plain, name), plain)])
            for plain, name in pairs.items()
        ]
        lower = [
            _change(result, measured, (plain, name), "rho", gap_of(published, plain, name))
            for plain, name in pairs.items()
        ]
        flatter = [_change(result, measured, pair, "classes") for pair in pairs.items()]
        later = [mean_finding(plain, _later(result, plain, n)) for plain, n in pairs.items()]
        return [
            *claims,
            Claim("R23", lower, "rho"),
            Claim("R24", flatter, "share of a class's first singular value"),
            Claim("R25", values),
            Claim("R27", later, "epochs"),
        ]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = without_kept_starts(results["objectives"])
        return [
            _scores(results["objectives"], ask),
            _chances(results[CURVE], ask),
            _spectra(result, measured, ask),
            _decay(result, measured, ask.set_up_data),
        ]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            f"The chances of the switch are theirs for {ask.set_up_data}.",
            "Spectra are of the training classes less a tenth for validation; theirs of all.",
        ]


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


def gap_of(values: Mapping[str, float], plain: str, name: str) -> float:
    return values.get(name, math.nan) - values.get(plain, math.nan)


def _by_seed(results: Results, method: str, measured: Measured, kind: str) -> dict[int, float]:
    """rho, or the share of the first value of a class's spectrum, by seed."""
    values = {}
    for run in results.of("", method):
        if run.planned.key in measured:
            value = measured[run.planned.key][kind]
            values[run.replicate[0]] = value if kind == "rho" else value[0]
    return values


def _change(
    results: Results,
    measured: Measured,
    pair: tuple[str, str],
    kind: str,
    published: float = math.nan,
) -> Finding:
    """What the switch changes, paired by seed."""
    before, after = (_by_seed(results, name, measured, kind) for name in pair)
    changes = [after[seed] - before[seed] for seed in before.keys() & after.keys()]
    return mean_finding(pair[0], changes, published, expected=-1)


def _later(results: Results, plain: str, name: str) -> list[float]:
    epochs = [
        {run.replicate[0]: run.epoch for run in results.of("", each) if run.epoch is not None}
        for each in (plain, name)
    ]
    return [float(epochs[1][s] - epochs[0][s]) for s in epochs[0].keys() & epochs[1].keys()]


def _scores(results: Results, ask: Ask) -> Section:
    pairs = objectives.switched(ask.set_up_data)
    names = [each for name, (plain, _) in pairs.items() for each in (plain, name)]
    theirs = objectives.published(ask.published_data)
    rows = [
        [n, score_text(results.of("", n), R1), number(theirs.get(n, {}).get(R1))] for n in names
    ]
    return Section("Gains", kept_message(results),
                   [Table(["objective", "R@1 %", "published"], rows)])  # fmt: skip


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
    figure = drawn(
        "chance",
        f"Recall@1 of {METHOD} by the chance of a switch, less that without it (dashed line), with "
        "its 95 % interval over seeds and classes."
        + ("" if math.isnan(theirs.gain) else " The diamond is the published gain."),
        lambda: _chance_figure(result, 100 * mean_of(plain, R1), theirs),
    )
    return Section("By the chance of a switch", [message], [table], [figure] if result else [])


def _chance_figure(result: Mapping[float, Effect], baseline: float, published: At) -> Figure:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    ax = figure.subplots()
    x = [chance for chance in result if chance]
    halves = [100 * result[c].half for c in x]
    ax.axhline(0, color=MUTED, ls="--", lw=1, label=f"no switch: {baseline:.1f} %")
    ax.errorbar(
        x, [100 * result[c].value for c in x], yerr=np.nan_to_num(halves), fmt="o-", color=ACCENT,
        capsize=3, ms=5, label="ours, 95 % interval",
    )  # fmt: skip
    if not math.isnan(published.gain):
        ax.plot(
            published.chance, published.gain, "D", mfc="none", color=MUTED, ms=7, label="published"
        )
    ax.set(xlabel="chance of a switch", ylabel="gain in recall@1, points", xlim=(0, 0.52))
    ax.grid(axis="y", color=LINE, lw=0.8)
    figure.legend(loc="outside upper right", ncols=3)
    return figure


def _spectra(results: Results, measured: dict[str, Any], ask: Ask) -> Section:
    decay = by_method(results, measured, "rho")
    fractions = by_method(results, measured, "classes")
    theirs, rows = RHO.get(ask.published_data, {}), []
    switched = objectives.switched(ask.set_up_data)
    pairs = [(plain, name) for name, (plain, _) in switched.items()]
    known = [pair for pair in pairs if all(name in decay for name in pair)]
    for plain, name in known:
        first = [
            float(np.mean([values[0] for values in fractions[each]])) for each in (plain, name)
        ]
        rhos = [over_seeds(decay[each]) for each in (plain, name)]
        rows.append(
            [
                plain,
                *[plain_text(spread) for spread in rhos],
                *[number(theirs.get(each), 2) for each in (plain, name)],
                *[f"{100 * fraction:.1f}" for fraction in first],
            ]
        )
    if not known:
        return Section("Spectra", ["No pair of runs left weights to measure spectra of."])
    heads = ["objective", "rho", "with it", "published", "with it", "in a class %", "with it"]
    caption = (
        "rho: ± half of the 95 % interval over seeds; published values are read off figures to "
        "0.01. In a class: the share of the first of a class's singular values, mean over classes."
    )
    figure = drawn(
        "spectra",
        "Singular values of the training embeddings over their sum, on a logarithmic scale: of all "
        "items (above) and as a mean over classes (below); solid without the switch, dashed with "
        "it. Flatter means that more directions are used.",
        lambda: _spectra_figure(results, measured, known),
    )
    return Section("Spectra", [], [Table(heads, rows, caption)], [figure])


def _spectra_figure(
    results: Results, measured: dict[str, Any], pairs: Sequence[tuple[str, str]]
) -> Figure:
    figure = Figure(figsize=(2.3 * max(2, len(pairs)), 4.8), layout="constrained")
    grid = figure.subplots(2, len(pairs), squeeze=False, sharex="row", sharey="row")
    for row, kind in enumerate(("all", "classes")):
        result = by_method(results, measured, kind)
        for ax, (plain, name) in zip(grid[row], pairs, strict=True):
            for method, style, color, label in (
                (plain, "-", ACCENT, "without"),
                (name, "--", OTHER, "with the switch"),
            ):
                values = mean_spectrum(result[method])
                ax.plot(range(1, len(values) + 1), values, style, color=color, label=label)
            logarithmic(ax)
            ax.set_title(plain if row == 0 else "", fontsize=8, loc="left")
    grid[0, 0].set_ylabel("all items")
    grid[1, 0].set_ylabel("mean over classes")
    for ax in grid[1]:
        ax.set_xlabel("singular value")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _decay(results: Results, measured: dict[str, Any], data: str) -> Section:
    decay = {m: float(np.mean(v)) for m, v in by_method(results, measured, "rho").items()}
    recall = {m: 100 * mean_of(results.of("", m), R1) for m in decay}
    pairs = {n: plain for n, (plain, _) in objectives.switched(data).items() if n in decay}
    switched = set(pairs)
    if not switched or len(decay) < 4:
        return Section("Decay and recall", ["Too few runs have finished to compare."])
    sentences = [
        f"With the switch rho lies between {_ends(decay[m] for m in switched)}, without it between "
        f"{_ends(decay[m] for m in decay if m not in switched)}.",
    ]
    figure = drawn(
        "decay",
        "Recall@1 on test classes against the spectral decay rho of the training embeddings, mean "
        "over seeds; squares: with the switch, at the end of an arrow from the same objective "
        "without it.",
        lambda: _decay_figure(decay, recall, pairs),
    )
    return Section("Decay and recall", sentences, figures=[figure])


def _ends(values: Iterable[float]) -> str:
    result = list(values)
    return f"{min(result):.2f} and {max(result):.2f}" if result else "–"


def _decay_figure(
    decay: Mapping[str, float], recall: Mapping[str, float], pairs: Mapping[str, str]
) -> Figure:
    figure = Figure(figsize=(8.5, 4.8), layout="constrained")
    ax = figure.subplots()
    for name, plain in pairs.items():
        if plain in decay:
            ends = [(decay[each], recall[each]) for each in (plain, name)]
            ax.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "->", "color": MUTED})
    numbered_points(ax, {m: (decay[m], recall[m]) for m in decay}, set(pairs))
    ax.set(xlabel="spectral decay rho (training classes)", ylabel="R@1 (test classes), %")
    name_list(figure, ax)
    return figure

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

from unseen.statistics import Spread, over_seeds
from unseen.studies import objectives
from unseen.studies.by_class import class_verdict, interval_text, over_classes
from unseen.studies.charts import logarithmic
from unseen.studies.figures import ACCENT, LINE, MUTED
from unseen.studies.numbered import OTHER, name_list, numbered_points
from unseen.studies.plan import Plan
from unseen.studies.preset import Ask, Preset, Told
from unseen.studies.preset_page import Section, Table
from unseen.studies.presets.losses import objectives_plan, set_up_differences
from unseen.studies.published_comparison import (
    UNSURE,
    drawn,
    gain_text,
    gains,
    mean_of,
    missing_text,
    number,
    plain_text,
    signed,
    verdict,
)
from unseen.studies.results import Results
from unseen.studies.revisit_figures import RHO
from unseen.studies.training_space import by_method, mean_spectrum, of_runs, spectra

CURVE = "switch_chance"
CHANCES = (0.0, 0.125, 0.25, 0.375, 0.5)
METHOD = "Margin (D, beta = 0.6)"
R1 = "recall@1"


class Gain(NamedTuple):
    """What the switch adds to an objective, and whether the published gain is seen."""

    objective: str
    gain: Spread
    published: float
    over_seeds: str
    over_classes: str


class At(NamedTuple):
    """A published gain and the chance of a switch it was found at."""

    chance: float
    gain: float


class Rho(Preset):
    source = "Roth et al. 2020, section 5.1, figures 7, 8 and 10 (ResNet-50, 128-d, 5 seeds)"
    shows = "gains of the rho switch, recall by its chance, spectra with and without"

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask), chance_plan(ask)]

    def measure(self, ask: Ask, results: Mapping[str, Results], tell: Told) -> dict[str, Any]:
        return of_runs(results["objectives"].runs, spectra, tell)

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        found = results["objectives"]
        return [
            _gains(found, ask.published_data),
            _chances(results[CURVE], ask.published_data),
            _spectra(found, measured, ask.published_data),
            _decay(found, measured, ask.published_data),
        ]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            f"The chances of the switch are theirs for {ask.published_data}.",
            "Spectra are of the training classes less a tenth for validation; theirs of all.",
        ]


def chance_plan(ask: Ask) -> Plan:
    """Margin loss by the chance of a switch."""
    settings = objectives.objectives()[METHOD]
    values = {f"{chance:g}": objectives.with_switch(settings, chance) for chance in CHANCES}
    about = f"{METHOD} of Roth et al. 2020 by the chance of a switch."
    seeds = 3 if ask.is_quick else 5
    return ask.plan(CURVE, about, {"chance": values}, objectives.SET_UP, seeds)


def _gains(results: Results, data: str) -> Section:
    theirs, rows, told = objectives.published(data), [], []
    for name, (plain, _) in objectives.switched(data).items():
        first, second = results.of("", plain), results.of("", name)
        published = _published_gain(theirs, plain, name)
        try:
            gain = gains(first, second, R1)
        except ValueError:  # no two runs of the same seed
            missing = [missing_text(first), missing_text(second)]
            rows.append([plain, *missing, "–", "–", signed(published, 2), "–", "–"])
            continue
        found = over_classes(first, second)
        words = [verdict(gain, published), class_verdict(found, published)]
        told.append(
            Gain(plain, gain, published, *["open" if word == UNSURE else word for word in words])
        )
        scores = [f"{100 * mean_of(runs, R1):.1f}" for runs in (first, second)]
        texts = [gain_text(gain), interval_text(found), signed(published, 2)]
        rows.append([plain, *scores, *texts, told[-1].over_seeds, told[-1].over_classes])
    heads = ["objective", "R@1 %", "with it", "gain", "over classes", "published"]
    heads += ["by seeds", "by classes"]
    caption = (
        "Gain: points of recall@1, paired by seed, ± half of its 95 % interval over seeds. Over "
        "classes: the 95 % interval when test classes are drawn anew and seeds stay. Last columns: "
        "whether the published gain holds, the opposite is seen, or, with 0 inside of the "
        "interval, the question is open; nothing is judged where no gain was published."
    )
    return Section("Gains", _gains_told(told, data), [Table(heads, rows, caption)])


def _gains_told(told: Sequence[Gain], data: str) -> list[str]:
    if not told:
        return ["No pair of runs with and without the switch has finished."]
    best, worst = (pick(told, key=lambda each: each.gain.mean) for pick in (max, min))
    known = [each for each in told if not math.isnan(each.published)]
    most = max(known, key=lambda each: each.published, default=None)
    theirs = "nothing" if most is None else f"by up to {signed(most.published)} ({most.objective})"
    ups, seeds = sum(each.gain.mean > 0 for each in told), min(each.gain.count for each in told)
    few = f" With {seeds} seed{'s' * (seeds > 1)} the former says little." if seeds < 3 else ""
    return [
        f"The rho switch raises recall@1 of {ups} of {len(told)} objectives; published on {data}: "
        f"{sum(each.published > 0 for each in known)} of {len(known)}.",
        f"It changes recall@1 between {gain_text(worst.gain)} ({worst.objective}) and "
        f"{gain_text(best.gain)} points ({best.objective}); published: {theirs}.",
        f"Published gains by the interval over seeds: {_counted([g.over_seeds for g in told])}; "
        f"by that over test classes: {_counted([g.over_classes for g in told])}.{few}",
    ]


def _counted(words: Sequence[str]) -> str:
    found = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return ", ".join(found)


def _published_gain(theirs: Mapping[str, Mapping[str, float]], plain: str, switched: str) -> float:
    return theirs.get(switched, {}).get(R1, math.nan) - theirs.get(plain, {}).get(R1, math.nan)


def _published_at(data: str) -> At:
    """Their gain of the method of the curve, and the chance that they took on a data set."""
    ((name, (_, settings)),) = (
        (name, of) for name, of in objectives.switched(data).items() if of[0] == METHOD
    )
    gain = _published_gain(objectives.published(data), METHOD, name)
    return At(float(settings["miner"]["switch"]), gain)


def _chances(results: Results, data: str) -> Section:
    runs = {chance: results.of("", f"{chance:g}") for chance in CHANCES}
    plain = runs[0.0]
    found: dict[float, Spread] = {}
    rows = []
    for chance, others in runs.items():
        score = mean_of(others, R1)
        try:
            found[chance] = gains(plain, others, R1)
        except ValueError:
            rows.append([f"{chance:g}", missing_text(others), "–", "–"])
            continue
        shown = [gain_text(found[chance]), interval_text(over_classes(plain, others))]
        rows.append([f"{chance:g}", f"{100 * score:.1f}", *(shown if chance else ["–", "–"])])
    theirs = _published_at(data)
    told = "No run without the switch has finished: there is nothing to compare with."
    if len(found) > 1:
        best = max((c for c in found if c), key=lambda c: found[c].mean)
        told = (
            f"{METHOD} has {100 * mean_of(plain, R1):.1f} % without the switch; of the chances "
            f"tried {best:g} is best with {gain_text(found[best])} points. Published: "
            f"{signed(theirs.gain, 2)} at {theirs.chance:g}."
        )
    caption = "Gain over chance 0: paired by seed, ± over seeds; then the interval over classes."
    table = Table(["chance", "R@1 %", "gain", "over classes"], rows, caption)
    figure = drawn(
        "chance",
        f"Recall@1 of {METHOD} by the chance of a switch, less that without it (dashed line), with "
        "the 95 % interval over seeds; the diamond is the published gain.",
        lambda: _chance_figure(found, 100 * mean_of(plain, R1), theirs),
    )
    return Section("By the chance of a switch", [told], [table], [figure] if found else [])


def _chance_figure(found: Mapping[float, Spread], baseline: float, published: At) -> Figure:
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    ax = figure.subplots()
    x = [chance for chance in found if chance]
    halves = [50 * (found[c].high - found[c].low) for c in x]
    ax.axhline(0, color=MUTED, ls="--", lw=1, label=f"no switch: {baseline:.1f} %")
    ax.errorbar(
        x, [100 * found[c].mean for c in x], yerr=np.nan_to_num(halves), fmt="o-", color=ACCENT,
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


def _spectra(results: Results, measured: dict[str, Any], data: str) -> Section:
    decay = by_method(results, measured, "rho")
    shares = by_method(results, measured, "classes")
    theirs, rows, down = RHO[data], [], []
    pairs = [(plain, name) for name, (plain, _) in objectives.switched(data).items()]
    known = [pair for pair in pairs if all(name in decay for name in pair)]
    for plain, name in known:
        first = [float(np.mean([values[0] for values in shares[each]])) for each in (plain, name)]
        rhos = [over_seeds(decay[each]) for each in (plain, name)]
        down.append(rhos[1].mean < rhos[0].mean)
        rows.append(
            [
                plain,
                *[plain_text(spread) for spread in rhos],
                *[number(theirs.get(each), 2) for each in (plain, name)],
                *[f"{100 * share:.1f}" for share in first],
            ]
        )
    if not known:
        return Section("Spectra", ["No pair of runs left weights to measure spectra of."])
    told = (
        f"The switch lowers the spectral decay rho of the training embeddings for {sum(down)} of "
        f"{len(known)} objectives (published on CUB-200: 5 of 5)."
    )
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
    return Section("Spectra", [told], [Table(heads, rows, caption)], [figure])


def _spectra_figure(
    results: Results, measured: dict[str, Any], pairs: Sequence[tuple[str, str]]
) -> Figure:
    figure = Figure(figsize=(2.3 * max(2, len(pairs)), 4.8), layout="constrained")
    grid = figure.subplots(2, len(pairs), squeeze=False, sharex="row", sharey="row")
    for row, kind in enumerate(("all", "classes")):
        found = by_method(results, measured, kind)
        for ax, (plain, name) in zip(grid[row], pairs, strict=True):
            for method, style, colour, label in (
                (plain, "-", ACCENT, "without"),
                (name, "--", OTHER, "with the switch"),
            ):
                values = mean_spectrum(found[method])
                ax.plot(range(1, len(values) + 1), values, style, color=colour, label=label)
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
    moved = [
        (decay[name] - decay[plain], recall[name] - recall[plain])
        for name, plain in pairs.items()
        if plain in decay
    ]
    flatter = [change for fall, change in moved if fall < 0]
    told = [
        f"Of {len(flatter)} objectives whose spectrum the switch makes flatter, recall@1 rises for "
        f"{sum(change > 0 for change in flatter)}; published on CUB-200: for all 5.",
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
    return Section("Decay and recall", told, figures=[figure])


def _ends(values: Iterable[float]) -> str:
    found = list(values)
    return f"{min(found):.2f} and {max(found):.2f}" if found else "–"


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

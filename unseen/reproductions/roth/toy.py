"""Points in the plane: what the rho switch does to an embedding that can be drawn.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, figures 6 and 11
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import over_seeds
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, plain_text
from unseen.reproductions.claims import Claim
from unseen.reproductions.effects import Finding, of_seeds
from unseen.reproductions.published_study import ByPlan, Evidence, Message, PublishedStudy
from unseen.reproductions.request import Ask
from unseen.reproductions.roth.toy_points import CODE_CHANCE, DATA, ToyRun, make_data, train
from unseen.studies.findings import Section
from unseen.studies.study_figures import LINE, MUTED

SETUPS = {  # title -> variant and chance of a switch
    "base": ("base", 0.0),
    "switch, chance 0.001": ("switch", CODE_CHANCE),
    "switch, chance 0.2": ("switch", 0.2),
    "switch, chance 0.4": ("switch", 0.4),
    "paper code": ("paper_code", CODE_CHANCE),
}
DRAWN = ("base", "switch, chance 0.4", "paper code")
FIGURE = {"diagonal": "figure 6", "vertical": "figure 11"}
QUICK, FULL = 5, 10  # seeds
INNER = 0.75  # radius at which test classes are drawn
MARKS = "osD^"  # one per class: readable without colours
COLORS = ("#1d5fa9", "#d9822b", "#3c8d5a", "#7a4a9e")


class Toy(PublishedStudy):
    source = "Roth et al. 2020, figures 6 and 11 (two-dimensional toy data)"
    shows = "which variant of switching makes the published image on two toy data sets"

    def measure(self, ask: Ask, results: ByPlan, progress: Message) -> dict[str, Any]:
        seeds = range(ask.seeds or (QUICK if ask.is_quick else FULL))
        result: dict[str, Any] = {}
        total = len(DATA) * len(SETUPS) * len(seeds)
        for data in DATA:
            for title, (configuration, chance) in SETUPS.items():
                runs = []
                for seed in seeds:
                    runs.append(train(make_data(data, seed), configuration, chance, seed))
                    progress("toy networks", len(result) * len(seeds) + len(runs), total)
                result[_key(data, title)] = _plain(runs, title in DRAWN)
        return result

    def claims(self, evidence: Evidence) -> list[Claim]:
        def changes(data: str, title: str) -> Finding:
            base, other = (
                evidence.measured[_key(data, each)]["separation"] for each in (DRAWN[0], title)
            )
            pairs = enumerate(zip(base, other, strict=True))
            values = {(seed, 0): after - before for seed, (before, after) in pairs}
            return of_seeds(f"{title} against base", values, ())

        return [
            Claim(name, [changes(data, title) for title in DRAWN[1:]], "distance of class means")
            for name, data in zip(self.answers, DATA, strict=True)
        ]

    def sections(self, evidence: Evidence) -> list[Section]:
        return [_section(data, evidence.measured) for data in DATA]


def _key(data: str, title: str) -> str:
    return f"{data}: {title}"


def _plain(runs: Sequence[ToyRun], with_points: bool) -> dict[str, Any]:
    """Numbers of all seeds; points of the first, for the figure."""
    result: dict[str, Any] = {
        "fractions": [float(run.fractions[0]) for run in runs],
        "decay": [run.decay for run in runs],
        "separation": [run.separation for run in runs],
    }
    if with_points:
        first = runs[0]
        points = {"data_train": first.data.train, "data_test": first.data.test}
        points |= {"train": first.train, "test": first.test, "labels": first.data.labels}
        result |= {name: tensor.tolist() for name, tensor in points.items()}
    return result


def _section(data: str, measured: dict[str, Any]) -> Section:
    rows = []
    for title in SETUPS:
        result = measured[_key(data, title)]
        spreads = (over_seeds(result[name]) for name in ("fractions", "decay", "separation"))
        rows.append([title, *(plain_text(spread) for spread in spreads)])
    heads = ["set-up", "first value's share", "KL(uniform | shares)", "separation"]
    seeds = len(measured[_key(data, "base")]["fractions"])
    caption = (
        f"Mean over seeds ({seeds}) ± half of its 95 % interval. "
        "Separation: the smallest distance between means of test classes."
    )
    figure = drawn(
        f"toy_{data}",
        f"As {FIGURE[data]}, seed 0. Data: filled marks are training classes, empty ones test "
        "classes. Embeddings: training classes on the circle, test classes drawn inside of it at "
        "their angle. Bars: both singular values of the training embeddings over their sum, mean "
        "over seeds; equal bars are the published image of the regularised embedding.",
        lambda: _panels(data, measured),
    )
    return Section(f"{data.capitalize()} data", [], [Table(heads, rows, caption)], [figure])


def _panels(data: str, measured: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    axes = figure.subplots(1, 5, width_ratios=[1, 1, 1, 1, 1.1])
    result = measured[_key(data, DRAWN[0])]
    _scatter(axes[0], result["data_train"], result["data_test"], result["labels"])
    axes[0].set(xlim=(0, 1.1), ylim=(0, 1.1))
    axes[0].set_title("data", loc="left", fontsize=9)
    for ax, title in zip(axes[1:4], DRAWN, strict=True):
        result = measured[_key(data, title)]
        angle = np.linspace(0, 2 * np.pi, 200)
        for radius in (1.0, INNER):
            ax.plot(radius * np.cos(angle), radius * np.sin(angle), color=LINE, lw=1, zorder=0)
        _scatter(ax, result["train"], INNER * np.asarray(result["test"]), result["labels"])
        ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        ax.set_title(title, loc="left", fontsize=9)
    _bars(axes[4], data, measured)
    for ax in axes[:4]:
        ax.set_aspect("equal")
        ax.set(xlabel="first value", ylabel="second value")
    return figure


def _scatter(ax: Any, train_points: Any, test_points: Any, labels: Sequence[int]) -> None:
    classes = np.asarray(labels)
    for points, filled in ((np.asarray(train_points), True), (np.asarray(test_points), False)):
        for number, mark in enumerate(MARKS):
            inside = points[classes == number]
            color = COLORS[number]
            ax.plot(
                inside[:, 0], inside[:, 1], mark, color=color, ms=4, alpha=0.8,
                mfc=color if filled else "none", mew=0.8,
            )  # fmt: skip


def _bars(ax: Any, data: str, measured: dict[str, Any]) -> None:
    for place, (title, hatch) in enumerate(zip(DRAWN, ("", "///", "..."), strict=True)):
        first = float(np.mean(measured[_key(data, title)]["fractions"]))
        shade = ("#1d5fa9", "#8fb0d6", "#e5ebf3")[place]
        ax.bar(
            np.arange(2) + 0.27 * (place - 1), [first, 1 - first], 0.25, color=shade,
            edgecolor=MUTED, hatch=hatch, label=title.replace(", chance", ""),
        )  # fmt: skip
    ax.set_xticks([0, 1], ["1st", "2nd"])
    ax.set_title("singular values", loc="left", fontsize=9)
    ax.set(xlabel="singular value", ylabel="share of the sum", ylim=(0, 1.15))
    ax.legend(fontsize=7, frameon=False, loc="upper right")

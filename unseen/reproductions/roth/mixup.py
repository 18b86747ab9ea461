"""Manifold mixup as a negative control: it compresses the embeddings, and recall should fall.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, supplement F, figure 12
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Spread, over_seeds
from unseen.reports.score_tables import row_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, kept_message, mean_of, plain_text, score_text
from unseen.reproductions.charts import logarithmic
from unseen.reproductions.claims import Claim, against, mean_finding
from unseen.reproductions.numbered_points import OTHER
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import set_up_differences
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import mean_spectrum, of_runs, spectra
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.studies.study_figures import ACCENT
from unseen.studies.study_file import Plan

R1 = "recall@1"
OBJECTIVES = ("Softmax", "Triplet (D)", "Margin (D, beta = 0.6)")
WITHOUT, WITH = "without mixup", "with mixup"


class Mixup(PublishedStudy):
    source = "Roth et al. 2020, supplement F, figure 12 (CUB-200, three objectives)"
    shows = "a negative control: recall and spectra with and without manifold mixup"
    origin = ROTH
    answers = ("R30", "R31")

    def plans(self, ask: Ask) -> list[Plan]:
        if not ask.has_images:
            raise ValueError(
                f"mixup mixes images and early layers, and {ask.data} holds features: "
                "use --data glyphs or a folder of images"
            )
        known = objectives.objectives(ask.is_quick, ask.set_up_data)
        factors = {
            "mixup": {WITHOUT: {}, WITH: {"manifold_mixup": True}},
            "objective": {name: known[name] for name in OBJECTIVES},
        }
        about = "Manifold mixup in the set-up of Roth et al. 2020."
        # nothing can be mixed in layers that run only once
        seeds = 2 if ask.is_quick else 5
        return [ask.plan("mixup", about, factors, {"freeze_until": None}, seeds, source=ROTH)]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        return of_runs(results["mixup"].runs, spectra, progress)

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        result = results["mixup"]
        lower = [
            against(result, WITHOUT, WITH, of=name, experiment=name, expected=-1)
            for name in OBJECTIVES
        ]
        decay = [mean_finding(name, _more_decay(result, name, measured)) for name in OBJECTIVES]
        return [Claim("R30", lower), Claim("R31", decay, "rho")]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = results["mixup"]
        return [_recall(result, ask.epochs(ROTH)), _spectra(result, measured)]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            "Places where images are mixed: the input and every stage that everything passes "
            "through, but the last; the source does not name its own.",
            "The source prints a figure without numbers, and calls the stronger decay a lower rho; "
            "as defined, stronger decay is a higher rho.",
        ]


def _recall(results: Results, epochs: int) -> Section:
    rows = [
        [name, *[score_text(results.of(name, each), R1) for each in (WITHOUT, WITH)]]
        for name in OBJECTIVES
    ]
    scores = Table(["objective", "R@1 %", "with mixup"], rows)
    sentences = [*kept_message(results), *_short_message(results, epochs)]
    return Section("Recall", sentences, [scores])


def _more_decay(results: Results, name: str, measured: Mapping[str, Any]) -> list[float]:
    """What mixup adds to rho, by seed."""
    before, after = (
        {run.replicate[0]: measured[run.planned.key]["rho"]
         for run in results.of(name, each) if run.planned.key in measured}
        for each in (WITHOUT, WITH)
    )  # fmt: skip
    return [after[seed] - before[seed] for seed in before.keys() & after.keys()]


def _short_message(results: Results, epochs: int) -> list[str]:
    """Objectives that have not learned enough to say much."""
    done = [run for run in results.runs if run.state == "done"]
    rows = {row: [run.score(R1, row) for run in done] for row in ("untrained", "pixels")}
    means = {row: float(np.mean(values)) for row, values in rows.items() if values}
    if not means:
        return []
    shown = ", ".join(f"{row_title(row)} {100 * value:.1f} %" for row, value in means.items())
    low = [n for n in OBJECTIVES if mean_of(results.of(n, WITHOUT), R1) < max(means.values())]
    if not low:
        return [f"Beside them: {shown}."]
    return [
        f"Beside them: {shown}. Without mixup, {' and '.join(low)} stay below the better of the "
        f"two: {epochs} epochs are few, and slower learning may be a part of what mixup costs here."
    ]


def _spectra(results: Results, measured: dict[str, Any]) -> Section:
    rows, names = [], []
    for name in OBJECTIVES:
        rhos = [_rho(results.of(name, each), measured) for each in (WITHOUT, WITH)]
        if rhos[0] is None or rhos[1] is None:
            rows.append([name, *["–" if rho is None else plain_text(rho) for rho in rhos]])
            continue
        names.append(name)
        rows.append([name, *[plain_text(rho) for rho in rhos if rho is not None]])
    if not names:
        return Section("Spectra", ["No pair of runs left weights to measure spectra of."])
    caption = "Spectral decay rho of the training embeddings, ± half of its 95 % interval."
    figure = drawn(
        "spectra",
        "Singular values of the training embeddings over their sum, on a logarithmic scale, mean "
        "over seeds: of all items (above) and as a mean over classes (below); solid without mixup, "
        "dashed with it.",
        lambda: _figure(results, measured, names),
    )
    return Section(
        "Spectra", [], [Table(["objective", "rho", "with mixup"], rows, caption)], [figure]
    )


def _rho(runs: Sequence[Run], measured: Mapping[str, Any]) -> Spread | None:
    result = [measured[run.planned.key]["rho"] for run in runs if run.planned.key in measured]
    return over_seeds(result) if result else None


def _figure(results: Results, measured: dict[str, Any], names: Sequence[str]) -> Figure:
    figure = Figure(figsize=(3 * max(2, len(names)), 5.4), layout="constrained")
    grid = figure.subplots(2, len(names), squeeze=False, sharey="row")
    for row, (kind, title) in enumerate((("all", "all items"), ("classes", "mean over classes"))):
        for ax, name in zip(grid[row], names, strict=True):
            for each, style, color in ((WITHOUT, "-", ACCENT), (WITH, "--", OTHER)):
                runs = [run for run in results.of(name, each) if run.planned.key in measured]
                values = mean_spectrum([measured[run.planned.key][kind] for run in runs])
                ax.plot(np.arange(1, len(values) + 1), values, style, color=color, label=each)
            logarithmic(ax)
            ax.set_title(name if row == 0 else "", fontsize=9, loc="left")
        grid[row, 0].set_ylabel(f"share of the sum, {title}")
    for ax in grid[1]:
        ax.set_xlabel("singular value")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure

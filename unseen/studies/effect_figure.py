"""What methods add, in one image: each effect with its interval, the published one beside it.

    effects_figure(results.comparisons(), "recall@1")

A filled dot is conclusive, a hollow one is not; a diamond is the published effect; the
conclusion stands at the right. One row a comparison, in the order given.
"""

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from unseen.reports.score_tables import metric_title
from unseen.studies.study_figures import ACCENT, MUTED, STYLE, Drawn, mark_on_test, name_rows
from unseen.studies.validity_checks import Compared

OURS, UNSURE, PUBLISHED = "ours, 95 % interval", "ours, inconclusive", "published"


def effects_drawn(
    result: Sequence[Compared],
    metric: str = "recall@1",
    name: str = "effects",
    on_test: bool = False,
) -> list[Drawn]:
    """The figure for a page; none where no run has a partner."""
    if not any(each.effect is not None for each in result):
        return []
    against = list(dict.fromkeys(each.against for each in result))
    whom = f" against {against[0]}" if len(against) == 1 else ""
    caption = (
        f"What each method adds{whom}, in points of {metric_title(metric)}, with its 95 % interval "
        "over seeds and test classes; hollow where a validity check is not passed."
    )
    if any(not math.isnan(each.published) for each in result):
        caption += " Diamonds: the published effects."
    figure = effects_figure(result, metric)
    if on_test:
        mark_on_test(figure)
    return [Drawn(name, caption, figure)]


def effects_figure(result: Sequence[Compared], metric: str) -> Figure:
    rows = list(result)[::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.3 * len(rows) + 1.3), layout="constrained")
        ax = figure.subplots()
        for place, each in enumerate(rows):
            _row(ax, place, each)
        ax.axvline(0, color=MUTED, lw=0.8)
        name_rows(ax, [_name(each, rows) for each in rows])
        ax.set(xlabel=f"effect on {metric_title(metric)}, points", ylabel="comparison")
        handles, labels = ax.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True))  # each once
        order = [label for label in (OURS, UNSURE, PUBLISHED) if label in shown]
        figure.legend(
            [shown[o] for o in order], order, loc="outside upper right", ncols=3, frameon=False
        )
    return figure


def _row(ax: matplotlib.axes.Axes, place: int, each: Compared) -> None:
    if each.effect is not None and not math.isnan(each.effect.value):
        half = 0.0 if math.isnan(each.effect.half) else 100 * each.effect.half
        unsure = not each.is_conclusive
        ax.errorbar(
            100 * each.effect.value, place, xerr=half, fmt="o", color=ACCENT, ms=5, capsize=3,
            mfc="none" if unsure else ACCENT, label=UNSURE if unsure else OURS,
        )  # fmt: skip
    if not math.isnan(each.published):
        ax.plot(each.published, place, "D", mfc="none", color=MUTED, ms=6, label=PUBLISHED)
    ax.text(1.01, place, each.word, transform=ax.get_yaxis_transform(), va="center", fontsize=8)


def _name(each: Compared, rows: Sequence[Compared]) -> str:
    has_method = len({row.method for row in rows}) > 1 or not each.experiment
    against = f" against {each.against}" if len({row.against for row in rows}) > 1 else ""
    return ": ".join(word for word in (each.experiment, has_method * each.method) if word) + against

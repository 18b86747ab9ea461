"""What a run's page shows of few shots, of other domains and of an open set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unseen.core.html_templates import PageSection
from unseen.evaluation.metric_names import OPEN_SET
from unseen.evaluation.open_set import OpenSet, RejectionPoint
from unseen.evaluation.training_gain import FIRST, Gain
from unseen.reports.figures import Line, Plot
from unseen.reports.score_tables import metric_title
from unseen.reports.stored_run import ExtraEvaluations
from unseen.runs.few_shot_layers import noted
from unseen.runs.few_shots import FewShots
from unseen.runs.forgetting import Domain, Forgetting

Json = dict[str, Any]
LINES = {  # of a point of the rejection curve -> title, colour, line in plotly and in CSS
    "dir": ("known, answered rightly and believed", "var(--accent)", "solid", "solid"),
    "far": ("unknown, believed", "var(--wrong)", "dash", "dashed"),
}


@dataclass(frozen=True)
class ChangeRow:
    """A score before and after; in percent."""

    name: str
    before: str
    after: str
    change: str
    interval: str
    is_worse: bool
    note: str = ""


def notices(extra: ExtraEvaluations) -> list[str]:
    """What a reader must know before the numbers."""
    warning = extra.forgetting.warning if extra.forgetting else None
    return [warning] if warning else []


def sections(extra: ExtraEvaluations) -> tuple[list[PageSection], Json]:
    """The parts of the page, and the figures they have frames for."""
    parts, drawn = [], {}
    if extra.shots:
        parts.append(shots_section(extra.shots))
    if extra.forgetting:
        drawn["forgetting"] = forgetting_figure(extra.forgetting)
        parts.append(forgetting_section(extra.forgetting))
    if extra.open_set:
        drawn["rejection"] = rejection_figure(extra.open_set)
        parts.append(open_set_section(extra.open_set))
    return parts, drawn


def shots_section(result: Mapping[str, FewShots]) -> PageSection:
    """A row for each number of shots and metric."""
    several = sorted(result.values(), key=lambda each: (each.shots, each.name))
    rows = [
        change_row(f"{each.shots} shots{noted(each.adapt)}, {metric_title(metric)}", gain)
        for each in several
        for metric, gain in sorted(each.gain.items(), reverse=True)  # recall first
    ]
    adapts = {each.adapt for each in several}
    return PageSection.of(
        "reports/few_shots", "Few shots", rows=rows, first=several[0], adapts=adapts
    )


def forgetting_section(result: Forgetting) -> PageSection:
    """Home first."""
    rows = [
        change_row(f"{result.home.data} (home)", result.home.gain[FIRST], _counted(result.home))
    ]
    rows += [change_row(d.data, d.gain[FIRST], _counted(d)) for d in result.elsewhere]
    lines = [
        Line("before training", "var(--muted)", "dashed"),
        Line("after training", "var(--accent)", "solid"),
    ]
    plot = Plot("forgetting", "Recall@1", "Recall@1 of each domain before and after", lines)
    return PageSection.of("reports/forgetting", "Other domains", rows=rows, plots=[plot])


def forgetting_figure(result: Forgetting) -> Json:
    """Two bars for each domain."""
    domains = [result.home, *result.elsewhere]
    names = [f"{d.data} (home)" if i == 0 else d.data for i, d in enumerate(domains)]
    sides = {"before": "var(--muted)", "after": "var(--accent)"}
    traces = [
        {
            "type": "bar",
            "name": f"{side} training",
            "x": names,
            "y": [round(100 * getattr(d.gain[FIRST], side), 2) for d in domains],
            "marker": {"color": color},
            "hovertemplate": "%{y:.1f} %<extra>" + f"{side} training</extra>",
        }
        for side, color in sides.items()
    ]
    axes = {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": "recall@1, %"}}}
    return {"data": traces, "layout": axes | {"barmode": "group"}}


def open_set_section(result: OpenSet) -> PageSection:
    """Scores, thresholds, groups."""
    lines = [Line(title, color, css) for title, color, _, css in LINES.values()]
    plot = Plot("rejection", "Answers believed", "Shares of queries by the threshold", lines)
    scores = [(open_set_title(name), result.scores[name]) for name in OPEN_SET]
    return PageSection.of(
        "reports/open_set", "Open set", result=result, scores=scores, plots=[plot]
    )


def open_set_title(name: str) -> str:
    """A metric's name, and what it is where that says little."""
    kind, _, value = name.partition("@")
    if kind == "unknown_auroc":
        return f"{metric_title(name)} of known against unknown"
    if kind == "fpr_at_tpr" and value:
        fraction = f"{100 * float(value):g} %"
        return f"{metric_title(name)}: unknown believed where {fraction} of the known are"
    return metric_title(name)


def rejection_figure(result: OpenSet) -> Json:
    """Both shares over the threshold, with the thresholds that were chosen on other classes."""
    traces = []
    for field, (title, color, dash, _) in LINES.items():
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": title,
                "x": [round(point.threshold, 5) for point in result.curve],
                "y": [round(100 * getattr(point, field), 2) for point in result.curve],
                "line": {"color": color, "width": 2, "dash": dash},
                "hovertemplate": "%{y:.1f} % from %{x:.3f} on<extra>" + title + "</extra>",
            }
        )
    layout: Json = {
        "xaxis": {"title": {"text": "threshold of the nearest similarity"}},
        "yaxis": {"title": {"text": "share of queries, %"}, "range": [0, 101]},
        "shapes": [_upright(point) for point in result.at.values()],
        "annotations": [
            {
                "x": point.threshold, "y": 1, "yref": "paper", "yanchor": "bottom",
                "xanchor": "left" if place else "right",
                "showarrow": False, "text": name, "font": {"size": 12},
            }
            for place, (name, point) in enumerate(
                sorted(result.at.items(), key=lambda item: item[1].threshold)
            )
        ],
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def change_row(name: str, gain: Gain, note: str = "") -> ChangeRow:
    return ChangeRow(
        name,
        before=f"{100 * gain.before:.1f}",
        after=f"{100 * gain.after:.1f}",
        change=f"{100 * (gain.after - gain.before):+.1f}",
        interval=f"{100 * gain.low:+.1f} … {100 * gain.high:+.1f}",
        is_worse=gain.high < 0,
        note=note,
    )


def _counted(domain: Domain) -> str:
    return f"{domain.classes:,} classes"


def _upright(point: RejectionPoint) -> Json:
    line = {"color": "var(--text)", "width": 1, "dash": "dash"}
    ends = {"x0": point.threshold, "x1": point.threshold, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", "line": line} | ends

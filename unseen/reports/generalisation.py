"""What a run's page shows of few shots, of other domains and of an open set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unseen.evaluation.gain import FIRST, Gain
from unseen.evaluation.metric_names import OPEN_SET
from unseen.evaluation.open_set import OpenSet, RejectionPoint
from unseen.experiment.few_shots import FewShots
from unseen.experiment.retention import Domain, Retention
from unseen.experiment.shot_layers import noted
from unseen.pages import Part
from unseen.reports.figures import Line, Plot
from unseen.reports.stored_run import Beyond
from unseen.reports.tables import metric_title

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


def notices(beyond: Beyond) -> list[str]:
    """What a reader must know before the numbers."""
    warning = beyond.retention.warning if beyond.retention else None
    return [warning] if warning else []


def sections(beyond: Beyond) -> tuple[list[Part], Json]:
    """The parts of the page, and the figures they have frames for."""
    parts, drawn = [], {}
    if beyond.shots:
        parts.append(shots_section(beyond.shots))
    if beyond.retention:
        drawn["retention"] = retention_figure(beyond.retention)
        parts.append(retention_section(beyond.retention))
    if beyond.open_set:
        drawn["rejection"] = rejection_figure(beyond.open_set)
        parts.append(open_set_section(beyond.open_set))
    return parts, drawn


def shots_section(found: Mapping[str, FewShots]) -> Part:
    """A row for each number of shots and metric."""
    several = sorted(found.values(), key=lambda each: (each.shots, each.name))
    rows = [
        change_row(f"{each.shots} shots{noted(each.adapt)}, {metric_title(metric)}", gain)
        for each in several
        for metric, gain in sorted(each.gain.items(), reverse=True)  # recall first
    ]
    adapts = {each.adapt for each in several}
    return Part.of("reports/few_shots", "Few shots", rows=rows, first=several[0], adapts=adapts)


def retention_section(found: Retention) -> Part:
    """Home first."""
    rows = [change_row(f"{found.home.data} (home)", found.home.gain[FIRST], _counted(found.home))]
    rows += [change_row(d.data, d.gain[FIRST], _counted(d)) for d in found.elsewhere]
    lines = [
        Line("before training", "var(--muted)", "dashed"),
        Line("after training", "var(--accent)", "solid"),
    ]
    plot = Plot("retention", "Recall@1", "Recall@1 of each domain before and after", lines)
    return Part.of("reports/retention", "Other domains", rows=rows, plots=[plot])


def retention_figure(found: Retention) -> Json:
    """Two bars for each domain."""
    domains = [found.home, *found.elsewhere]
    names = [f"{d.data} (home)" if i == 0 else d.data for i, d in enumerate(domains)]
    sides = {"before": "var(--muted)", "after": "var(--accent)"}
    traces = [
        {
            "type": "bar",
            "name": f"{side} training",
            "x": names,
            "y": [round(100 * getattr(d.gain[FIRST], side), 2) for d in domains],
            "marker": {"color": colour},
            "hovertemplate": "%{y:.1f} %<extra>" + f"{side} training</extra>",
        }
        for side, colour in sides.items()
    ]
    axes = {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": "recall@1, %"}}}
    return {"data": traces, "layout": axes | {"barmode": "group"}}


def open_set_section(found: OpenSet) -> Part:
    """Scores, thresholds, groups."""
    lines = [Line(title, colour, css) for title, colour, _, css in LINES.values()]
    plot = Plot("rejection", "Answers believed", "Shares of queries by the threshold", lines)
    scores = [(open_set_title(name), found.scores[name]) for name in OPEN_SET]
    return Part.of("reports/open_set", "Open set", found=found, scores=scores, plots=[plot])


def open_set_title(name: str) -> str:
    """A metric's name, and what it is where that says little."""
    kind, _, value = name.partition("@")
    if kind == "unknown_auroc":
        return f"{metric_title(name)} of known against unknown"
    if kind == "fpr_at_tpr" and value:
        share = f"{100 * float(value):g} %"
        return f"{metric_title(name)}: unknown believed where {share} of the known are"
    return metric_title(name)


def rejection_figure(found: OpenSet) -> Json:
    """Both shares over the threshold, with the thresholds that were chosen on other classes."""
    traces = []
    for field, (title, colour, dash, _) in LINES.items():
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": title,
                "x": [round(point.threshold, 5) for point in found.curve],
                "y": [round(100 * getattr(point, field), 2) for point in found.curve],
                "line": {"color": colour, "width": 2, "dash": dash},
                "hovertemplate": "%{y:.1f} % from %{x:.3f} on<extra>" + title + "</extra>",
            }
        )
    layout: Json = {
        "xaxis": {"title": {"text": "threshold of the nearest similarity"}},
        "yaxis": {"title": {"text": "share of queries, %"}, "range": [0, 101]},
        "shapes": [_upright(point) for point in found.at.values()],
        "annotations": [
            {
                "x": point.threshold, "y": 1, "yref": "paper", "yanchor": "bottom",
                "xanchor": "left" if place else "right",
                "showarrow": False, "text": name, "font": {"size": 12},
            }
            for place, (name, point) in enumerate(
                sorted(found.at.items(), key=lambda item: item[1].threshold)
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

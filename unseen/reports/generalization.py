"""What is shown of few shots, of other domains and of an open set: tables, figures, sections."""

from collections.abc import Mapping, Sequence
from typing import Any

from unseen.core.html_templates import PageSection
from unseen.evaluation.metric_names import OPEN_SET
from unseen.evaluation.open_set import OpenSet
from unseen.evaluation.training_gain import FIRST, Gain
from unseen.reports import figures
from unseen.reports.figures import Line, Plot
from unseen.reports.score_tables import metric_title, percent
from unseen.reports.stored_run import ExtraEvaluations
from unseen.reports.tables import Cell, Table
from unseen.runs.few_shots import FewShots, noted
from unseen.runs.other_data import Forgetting

Json = dict[str, Any]
CHANGE = ("before", "after", "change")
LINES = {  # of a point of the rejection curve -> title, colour, line
    "dir": ("known, answered rightly and believed", "var(--accent)", "solid"),
    "far": ("unknown, believed", "var(--wrong)", "dash"),
}


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
        parts.append(open_set_section(extra.open_set, drawn["rejection"]))
    return parts, drawn


def shots_section(result: Mapping[str, FewShots]) -> PageSection:
    """By the number of shots."""
    several = sorted(result.values(), key=lambda each: (each.shots, each.name))
    adapts = {each.adapt for each in several}
    shown = shots_table(several)
    return PageSection.of(
        "reports/few_shots", "Few shots", shown=shown, first=several[0], adapts=adapts
    )


def shots_table(result: Sequence[FewShots]) -> Table:
    """A row for each number of shots and metric."""
    rows = [
        [f"{each.shots} shots{noted(each.adapt)}, {metric_title(metric)}", *_change(gain)]
        for each in result
        for metric, gain in sorted(each.gain.items(), reverse=True)  # recall first
    ]
    return Table(["%", *CHANGE], rows, numbers=range(1, 4))


def forgetting_section(result: Forgetting) -> PageSection:
    lines = [
        Line("before training", "var(--muted)", "dashed"),
        Line("after training", "var(--accent)", "solid"),
    ]
    plot = Plot("forgetting", "Recall@1", "Recall@1 of each domain before and after", lines)
    shown = domains_table(result)
    return PageSection.of("reports/forgetting", "Other domains", shown=shown, plots=[plot])


def domains_table(result: Forgetting) -> Table:
    """Home first."""
    names = [f"{result.home.data} (home)", *(domain.data for domain in result.elsewhere)]
    rows = [
        [name, f"{domain.classes:,}", *_change(domain.gain[FIRST])]
        for name, domain in zip(names, [result.home, *result.elsewhere], strict=True)
    ]
    return Table(["recall@1, %", "classes", *CHANGE], rows, numbers=range(1, 5))


def forgetting_figure(result: Forgetting) -> Json:
    """Two bars for each domain."""
    domains = [result.home, *result.elsewhere]
    names = [f"{d.data} (home)" if i == 0 else d.data for i, d in enumerate(domains)]
    sides = {"before": "var(--muted)", "after": "var(--accent)"}
    series = {
        f"{side} training": (color, [getattr(d.gain[FIRST], side) for d in domains])
        for side, color in sides.items()
    }
    return figures.bars_figure(names, series)


def open_set_section(result: OpenSet, drawn: Json) -> PageSection:
    lines = figures.lines_of(drawn)
    plot = Plot("rejection", "Answers believed", "Shares of queries by the threshold", lines)
    tables = open_set_tables(result)
    return PageSection.of(
        "reports/open_set", "Open set", result=result, tables=tables, plots=[plot]
    )


def open_set_tables(result: OpenSet) -> list[Table]:
    """Scores without a threshold, then what each threshold does."""
    scores: list[list[Cell | str]] = [
        [open_set_title(name), Cell(percent(score.value), _ends(score.low, score.high))]
        for name, score in ((name, result.scores[name]) for name in OPEN_SET)
    ]
    tables = [Table(["open set, %", "value"], scores, numbers=[1])]
    if result.at:
        rows = [
            [name, f"{at.threshold:.4f}"]
            + [percent(value) for value in (at.far, at.dir, at.baks, at.baus, at.balance)]
            for name, at in result.at.items()
        ]
        heads = ["threshold", "similarity", "FAR", "DIR", "BAKS", "BAUS", "geometric mean"]
        tables.append(Table(heads, rows, numbers=range(1, 7)))
    return tables


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
    x, hover = [round(point.threshold, 5) for point in result.curve], "%{y:.1f} % from %{x:.3f} on"
    traces = []
    for field, (title, color, dash) in LINES.items():
        percents = [round(100 * getattr(point, field), 2) for point in result.curve]
        traces.append(figures.line(title, x, percents, color, dash, hover, mode="lines"))
    ranked = sorted(result.at.items(), key=lambda item: item[1].threshold)
    marks = [
        figures.upright(point.threshold, name, xanchor="left" if place else "right")
        for place, (name, point) in enumerate(ranked)
    ]
    layout = {key: [mark[key][0] for mark in marks] for key in ("shapes", "annotations")}
    axes = {
        "xaxis": {"title": {"text": "threshold of the nearest similarity"}},
        "yaxis": {"title": {"text": "share of queries, %"}, "range": [0, 101]},
    }
    return {"data": traces, "layout": axes | layout}


def _change(gain: Gain) -> list[Cell | str]:
    """Before, after and what lies between, in percent."""
    change = Cell(f"{100 * (gain.after - gain.before):+.1f}", _ends(gain.low, gain.high, "+"))
    return [percent(gain.before), percent(gain.after), change]


def _ends(low: float, high: float, sign: str = "") -> str:
    return f"({100 * low:{sign}.1f} … {100 * high:{sign}.1f})"

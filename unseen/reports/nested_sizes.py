"""Recall of a nested embedding at each of its sizes, beside principal components of that size."""

from typing import Any

from unseen.core.html_templates import PageSection
from unseen.reports import score_tables
from unseen.reports.figures import Line, Plot
from unseen.reports.stored_run import StoredRun
from unseen.training.nested import row_at

Json = dict[str, Any]
LINES = {  # rows of the score table -> title, colour, line in plotly and in CSS
    "trained": ("nested embedding, its first numbers", "var(--accent)", "solid", "solid"),
    "principal": ("PCA baseline", "var(--muted)", "dash", "dashed"),
}


def figure(run: StoredRun) -> Json | None:
    """Two lines over the sizes, up to the whole embedding."""
    if not run.result or not (sizes := score_tables.sizes(run.result)):
        return None
    whole = int(run.config["embedding_size"])
    traces = []
    for row, (title, color, dash, _) in LINES.items():
        rows = {size: row_at(row, size) for size in sizes} | {whole: row}
        result = {size: run.result.score(name, "recall@1") for size, name in rows.items()}
        values = {str(size): round(100 * cell.value, 2) for size, cell in result.items() if cell}
        if len(values) > 1:
            line = {"color": color, "width": 2, "dash": dash}
            hover = "%{y:.1f} %<extra>" + title + "</extra>"
            trace = {"type": "scatter", "mode": "lines+markers", "name": title, "line": line}
            traces.append(trace | {"x": list(values), "y": list(values.values())})
            traces[-1]["hovertemplate"] = hover
    axes = {"xaxis": {"type": "category", "title": {"text": "numbers of a descriptor"}}}
    return {"data": traces, "layout": axes | {"yaxis": {"title": {"text": "recall@1, %"}}}}


def section(sizes: Json) -> PageSection:
    """The frame of the figure, and how a size is used."""
    drawn = {trace["name"] for trace in sizes["data"]}
    lines = [Line(title, color, css) for title, color, _, css in LINES.values() if title in drawn]
    plot = Plot("sizes", "Recall@1", "Recall@1 by the size of the descriptor", lines)
    return PageSection.of("reports/sizes", "Sizes", plots=[plot], smallest=sizes["data"][0]["x"][0])

"""Layers as descriptors, after N. Vo and J. Hays (WACV 2019): recall of each on training and on
unseen classes as bars, over time as curves, and queries on which two layers disagree."""

from html import escape
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from unseen.contracts import Dataset
from unseen.reports.run_folder import LayerAnswers, RunFolder
from unseen.reports.tables import percent
from unseen.reports.thumbnails import tile

Json = dict[str, Any]

SHOWN = 6  # disagreements of a kind
SEED = 0
MOST_CURVES = 6  # layers, counted from the loss
COLOURS = ("#4c78a8", "#b279a2", "#9d755d", "#54a24b", "#e0a030", "var(--accent)")
ON_TEST = (
    "Read on test classes: for looking. To choose a layer use descriptor=best, which reads "
    "validation classes."
)


def layer_table(table: Json) -> Table:
    """For the terminal: one row per layer, from the picture to the loss."""
    shown = Table(title="R@1 by layer, %", caption=ON_TEST)
    for head in ("layer", "size", "train classes", "test classes"):
        shown.add_column(head, justify="left" if head == "layer" else "right")
    best = max(row["test"] for row in table["layers"])
    for row in table["layers"]:
        style = "bold" if row["test"] == best else ""
        cells = (f"{row['size']:,}", percent(row["train"]), percent(row["test"]))
        shown.add_row(Text(row["layer"]), *cells, style=style)
    return shown


def bars_figure(run: RunFolder) -> Json | None:
    """Two bars per layer: training classes and test classes."""
    if not run.layers:
        return None
    rows = run.layers["layers"]
    traces = [
        {
            "type": "bar",
            "name": title,
            "x": [row["layer"] for row in rows],
            "y": [round(100 * row[part], 2) for row in rows],
            "marker": {"color": colour},
            "hovertemplate": "%{y:.1f} %<extra>" + title + "</extra>",
        }
        for part, title, colour in (
            ("train", "training classes", "var(--muted)"),
            ("test", "test classes", "var(--accent)"),
        )
    ]
    axes = {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": "recall@1, %"}}}
    return {"data": traces, "layout": {"barmode": "group", **axes}}


def epochs_with_layers(run: RunFolder) -> list[Json]:
    """Events of epochs whose layers were compared."""
    return [event for event in run.epochs if event.get("layers")]


def curves_figure(run: RunFolder) -> Json | None:
    """Recall of the last layers over epochs: solid on unseen, dotted on training classes."""
    events = epochs_with_layers(run)
    if not events:
        return None
    unseen = _unseen_part(events)
    # the journal keeps the order of the layers; the last ones are nearest to the loss
    names = list(events[-1]["layers"][unseen])[-MOST_CURVES:]
    traces = []
    for name, colour in zip(names, COLOURS[-len(names) :], strict=True):
        for part, dash in ((unseen, "solid"), ("train", "dot")):
            title = name if part == unseen else f"{name}, training classes"
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": title,
                    "x": [event["epoch"] + 1 for event in events],
                    "y": [100 * event["layers"][part][name] for event in events],
                    "line": {"color": colour, "width": 2, "dash": dash},
                    "hovertemplate": "%{y:.1f} %<extra>" + title + "</extra>",
                }
            )
    axes = {"xaxis": {"title": {"text": "epochs"}}, "yaxis": {"title": {"text": "recall@1, %"}}}
    return {"data": traces, "layout": axes}


def section(run: RunFolder, dataset: Dataset, drawn: Json) -> str:
    """Figures and disagreements as HTML."""
    text = (
        "<p>Any layer can be the descriptor. Training recall rises towards the loss; the layer "
        "before it often serves unseen classes better (Vo and Hays, 2019).</p>"
    )
    figures = {
        "layers": (
            "Recall@1 by layer: grey on training classes, coloured on test classes",
            ON_TEST,
        ),
        "layer-curves": _curves_caption(run),
    }
    plots = "".join(
        f'<figure><figcaption class="small">{title}. {note}'
        f"{_key(drawn[name]) if name == 'layer-curves' else ''}</figcaption>"
        f'<div class="plot" id="{name}" role="img" aria-label="{escape(title)}"></div></figure>'
        for name, (title, note) in figures.items()
        if drawn.get(name)
    )
    text += f'<div class="curves">{plots}</div>'
    return text + (disagreements(run.layer_answers, dataset) if run.layer_answers else "")


def disagreements(answers: LayerAnswers, dataset: Dataset) -> str:
    """Queries that the last layer and the best of the others answer differently."""
    recall = np.nanmean(answers.right, axis=1)
    last = len(answers.names) - 1
    if last < 1:
        return ""
    other = int(recall[:-1].argmax())
    rng, text = np.random.default_rng(SEED), ""
    for better, worse in ((other, last), (last, other)):
        answered = answers.nearest[worse] >= 0
        differ = np.flatnonzero(
            (answers.right[better] == 1) & (answers.right[worse] == 0) & answered
        )
        rows = "\n".join(
            _row(query, better, worse, answers, dataset)
            for query in rng.permutation(differ)[:SHOWN]
        )
        names = f"<code>{escape(answers.names[better])}</code>"
        wrong = f"<code>{escape(answers.names[worse])}</code>"
        text += (
            f"<h3>Right at {names}, wrong at {wrong}: {len(differ):,} queries</h3>"
            f'<div class="pairs">{rows}</div>'
        )
    return text


def _curves_caption(run: RunFolder) -> tuple[str, str]:
    part = _unseen_part(epochs_with_layers(run)) if epochs_with_layers(run) else "validation"
    note = "Test classes were watched during training." if part == "test" else ""
    return f"Recall@1 over time: solid on {part} classes, dotted on training classes", note


def _key(figure: Json) -> str:
    """Which line is which, in words beside the figure."""
    solid = [trace for trace in figure["data"] if trace["line"]["dash"] == "solid"]
    lines = [(trace["line"]["color"], escape(trace["name"])) for trace in solid]
    return "".join(
        f'<span><i style="border-color:{colour}"></i>{name}</span> ' for colour, name in lines
    )


def _unseen_part(events: list[Json]) -> str:
    return "test" if "test" in events[-1]["layers"] else "validation"


def _row(query: int, better: int, worse: int, answers: LayerAnswers, dataset: Dataset) -> str:
    items = answers.indices
    asked = tile(items[query], dataset, "query", '<span class="verdict">query</span>')
    found = ""
    for layer, word, sign in ((better, "right", "✓"), (worse, "wrong", "✗")):
        verdict = f'<span class="verdict">{sign} {escape(answers.names[layer])}</span>'
        answer = items[answers.nearest[layer, query]]
        found += f'<li class="tile {word}">{tile(answer, dataset, word, verdict)}</li>'
    return f'<div class="query"><div class="tile">{asked}</div><ol>{found}</ol></div>'

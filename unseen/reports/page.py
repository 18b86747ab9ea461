"""The report of a run: one HTML file that needs no network, no server and no second file.

Made from the run folder and the pictures of its data set alone, without times or paths of its own:
the same run gives the same page, byte for byte. The style sheets and the script stand beside this
file and are put into the page; a content security policy forbids it to load anything else.
"""

import base64
import gzip
import json
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from unseen.contracts import Dataset
from unseen.files import replace_bytes
from unseen.reports import (
    diagnosis,
    figures,
    layers,
    queries,
    reliability,
    run_folder,
    sections,
    tables,
)
from unseen.reports.embedding_map import map_data
from unseen.reports.run_folder import RunFolder

Json = dict[str, Any]

POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


def write(run: Path, dataset: Dataset, progress: Callable[[str], None] | None = None) -> Path:
    """Writes `report/index.html` into a run folder, gives its path. `progress` hears each stage."""
    say = progress or (lambda stage: None)
    say("reading the run")
    folder = run_folder.read(run)
    html = render(folder, dataset, say)
    out = run / "report" / "index.html"
    replace_bytes(out, html.encode())
    return out


def render(run: RunFolder, dataset: Dataset, say: Callable[[str], None]) -> str:
    """The whole page as text."""
    drawn: Json = {"loss": figures.loss_figure(run), "recall": figures.recall_figure(run)}
    parts = []  # (anchor, title, HTML)
    if run.result:
        parts.append(("scores", "Scores", sections.scores(run.result)))
    parts.append(("curves", "Learning curves", _curves(run, drawn)))
    if run.layers or layers.epochs_with_layers(run):
        drawn |= {"layers": layers.bars_figure(run), "layer-curves": layers.curves_figure(run)}
        parts.append(("layers", "Layers", layers.section(run, dataset, drawn)))
    if run.diagnosis:
        parts.append(("diagnosis", "Diagnosis", diagnosis.section(run.diagnosis, dataset)))
    if run.test is not None and run.test.usable:
        normalise = bool(run.config.get("normalise", True))
        say("finding neighbours")
        found = queries.find(run.test, normalise)
        say("choosing queries")
        parts.append(("retrieval", "Retrieval", sections.retrieval(run.test, found, dataset)))
        say("drawing the map")
        drawn["map"] = map_data(run.test, found, dataset, normalise)
        if drawn["map"]:
            parts.append(("map", "Map", sections.map_section(drawn["map"])))
    if run.calibration:
        parts.append(("calibration", "Calibration", reliability.section(run.calibration)))
    parts.append(("training", "What was trained", sections.training(run, dataset)))
    say("writing the page")
    return _document(run, parts, drawn)


def _curves(run: RunFolder, drawn: Json) -> str:
    """Frames for the curves, with a sentence that says what they show."""
    lines = {"loss": "Training loss", "recall": "Recall@1"}
    keys = {"loss": "", "recall": _key(drawn["recall"])}
    plots = "".join(
        f'<figure><figcaption class="small">{line}{keys[name]}</figcaption>'
        f'<div class="plot" id="{name}" role="img" aria-label="{line} over epochs"></div></figure>'
        for name, line in lines.items()
        if drawn[name]
    )
    if not plots:
        return "<p>The journal holds no step yet.</p>"
    selection = (run.result or {}).get("selection") or {}
    kept = f"<p>Dashed line, kept: {tables.kept(selection)}.</p>" if "epoch" in selection else ""
    return f'{kept}<div class="curves">{plots}</div>'


def _key(figure: Json | None) -> str:
    """Which line is which, in words beside the figure: there it wraps on a narrow screen."""
    drawn = {trace["name"] for trace in figure["data"]} if figure else set()
    return "".join(
        f'<span><i style="border-color:{colour};border-top-style:{style}"></i>{title}</span> '
        for title, colour, _, style in figures.PARTS.values()
        if title in drawn
    )


def _document(run: RunFolder, parts: list[tuple[str, str, str]], drawn: Json) -> str:
    links = "".join(f'<a href="#section-{anchor}">{title}</a>' for anchor, title, _ in parts)
    body = "".join(
        f'<section aria-labelledby="section-{anchor}"><h2 id="section-{anchor}">{title}</h2>\n'
        f"{html}</section>\n"
        for anchor, title, html in parts
    )
    data_name = str((run.result or {}).get("data", {}).get("name", ""))
    bars = sections.head_bars(run.result) if run.result else ""
    scripts = "" if not any(drawn.values()) else _scripts(drawn)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(run.name)} · unseen</title>
<style>
{_resource("look.css")}
{_resource("page.css")}</style>
</head>
<body>
<header class="bar"><span><strong>unseen</strong> · run <bdi>{escape(run.name)}</bdi>{
        f" · data <bdi>{escape(data_name)}</bdi>" if data_name else ""
    }</span><nav aria-label="Sections">{links}</nav></header>
<main>
<div class="head"><h1>{sections.headline(run)}</h1>
{bars}</div>
{_notices(run)}{body}</main>
{scripts}</body>
</html>
"""


def _notices(run: RunFolder) -> str:
    """What a reader must know before the numbers."""
    found = tables.no_gain(run.result)
    texts = [] if found is None else [f"What to try: {found.remedy}"]
    if run.result is None:
        done = f"after {len(run.epochs)} of {run.config.get('epochs', '?')} epochs"
        texts.append(
            f"Not finished ({done}): no result.json yet, so scores, retrieval and map are missing. "
            "Run its command again to finish it."
        )
    elif run.test is None:
        texts.append("There is no embeddings/test.npz, so retrieval and map are missing.")
    if run.test is not None and not run.test.usable:
        texts.append(
            "The embeddings are not finite numbers, or fewer than two: no retrieval, no map."
        )
    if run.result and tables.chosen_on_test(run.result):
        texts.append(tables.ON_TEST)
    if any("test" in event for event in run.epochs):
        texts.append(tables.WATCHED)
    return "".join(f'<p class="notice">{escape(text)}</p>\n' for text in texts)


def _scripts(drawn: Json) -> str:
    # a label may hold "</script>": no "<" survives in the data
    data = json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        "<noscript><p>The curves and the map need scripts; the rest does not.</p></noscript>\n"
        f'<script type="application/json" id="figure-data">{data}</script>\n'
        f'<script type="text/plain" id="plotly">{_packed_plotly()}</script>\n'
        f"<script>{_resource('page.js')}</script>\n"
    )


@cache
def _packed_plotly() -> str:
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _resource(name: str) -> str:
    return files("unseen.reports").joinpath(name).read_text(encoding="utf-8")

"""The report of a run: one HTML file that needs no network, no server and no second file.

Made from the run folder and the pictures of its data set alone, without times or paths of its own:
the same run gives the same page, byte for byte. The templates, style sheets and the script stand
beside this file; a content security policy forbids the page to load anything else.
"""

import base64
import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from unseen.contracts import Dataset, FeatureDataset, UnreadablePictureError
from unseen.experiment.explain import explain_items
from unseen.experiment.trained import Trained
from unseen.files import replace_bytes
from unseen.pages import Page, render
from unseen.reports import (
    diagnosis,
    figures,
    generalisation,
    layers,
    queries,
    sections,
    sizes,
    stored_run,
    tables,
    thumbnails,
    why_alike,
)
from unseen.reports.embedding_map import map_data
from unseen.reports.stored_run import StoredRun

Json = dict[str, Any]


def write(run: Path, dataset: Dataset, progress: Callable[[str], None] | None = None) -> Path:
    """Writes `report/index.html` into a run folder, gives its path. `progress` hears each stage."""
    say = progress or (lambda stage: None)
    say("reading the run")
    folder = stored_run.read(run)
    html = page_of(folder, dataset, say, _explainer(run, dataset))
    out = run / "report" / "index.html"
    replace_bytes(out, html.encode())
    return out


def page_of(
    run: StoredRun,
    dataset: Dataset,
    say: Callable[[str], None],
    explain: sections.Explain | None = None,
) -> str:
    """The whole page as text."""
    drawn: Json = {"loss": figures.loss_figure(run), "recall": figures.recall_figure(run)}
    parts = []
    if run.result:
        parts.append(sections.scores(run.result))
        if (by_class := tables.by_size(run.result)) is not None:
            parts.append(sections.by_size(by_class))
    if by_size := sizes.figure(run):
        drawn["sizes"] = by_size
        parts.append(sizes.section(by_size))
    if run.result and run.result.selection and (climbed := run.result.selection.ladder):
        parts.append(sections.ladder(climbed, run.manifest.plan or []))
    parts.append(sections.curves(run, drawn["loss"], drawn["recall"]))
    if run.layers or layers.layers_by_epoch(run):
        drawn |= {"layers": layers.bars_figure(run), "layer-curves": layers.curves_figure(run)}
        parts.append(layers.section(run, dataset, drawn))
    if run.diagnosis:
        parts.append(diagnosis.section(run.diagnosis, dataset))
    if run.test is not None and run.test.usable:
        normalise = bool(run.config.get("normalise", True))
        say("finding neighbours")
        found = queries.find(run.test, normalise)
        say("choosing queries")
        parts.append(sections.retrieval(run.test, found, dataset, explain))
        say("drawing the map")
        drawn["map"] = map_data(run.test, found, dataset, normalise)
        if drawn["map"]:
            parts.append(sections.map_section(drawn["map"]))
    if run.calibration:
        parts.append(sections.calibration(run.calibration))
    further, more = generalisation.sections(run.beyond)
    parts, drawn = [*parts, *further], drawn | more
    parts.append(sections.training(run, dataset))
    say("writing the page")
    return render(
        "reports/run",
        page=Page("run", run.name, sections.headline(run), _notices(run), parts),
        data=run.result.data.name if run.result else "",
        bars=sections.head_bars(run.result) if run.result else [],
        figures=drawn if any(drawn.values()) else None,
        plotly=_packed_plotly,
    )


def _explainer(run: Path, dataset: Dataset) -> sections.Explain | None:
    """Needs the network and pictures."""
    if isinstance(dataset, FeatureDataset) or not (run / "weights.safetensors").exists():
        return None
    trained = Trained.open(run)

    def explain(first: int, second: int) -> thumbnails.Explained | None:
        try:
            return why_alike.explained(explain_items(trained, dataset, first, second))
        except UnreadablePictureError:
            return None

    return explain


def _notices(run: StoredRun) -> list[str]:
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
    if run.result and (said := tables.incomplete(run.result)):
        texts.append(said)
    if run.result and (said := tables.copies(run.result)):
        texts.append(said)
    texts += generalisation.notices(run.beyond)
    if run.result and (said := tables.changed_labels(run.result)):
        texts.append(said)
    if any(event.test is not None for event in run.epochs):
        texts.append(tables.WATCHED)
    return texts


@cache
def _packed_plotly() -> str:
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()

"""The report of a run: one HTML file that needs no network, no server and no second file.

Made from the run folder and the images of its data set alone, without times or paths of its own:
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

from unseen.core.contracts import Dataset, FeatureDataset
from unseen.core.files import UnreadableImageError, replace_bytes
from unseen.core.html_templates import Page, render
from unseen.reports import (
    diagnosis,
    figures,
    generalization,
    layer_report,
    queries,
    score_tables,
    sections,
    stored_run,
    thumbnails,
    why_alike,
)
from unseen.reports.embedding_map import map_data
from unseen.reports.stored_run import StoredRun
from unseen.runs.explain import explain_items
from unseen.runs.trained_run import Trained

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
        if (by_class := score_tables.by_size(run.result)) is not None:
            parts.append(sections.by_size(by_class))
    if by_size := figures.sizes_figure(run):
        drawn["sizes"] = by_size
        parts.append(sections.sizes(by_size))
    if run.result and run.result.selection and (log := run.result.selection.stages):
        parts.append(sections.stages(log, [str(reason) for reason in run.manifest.plan or []]))
    parts.append(sections.curves(run, drawn["loss"], drawn["recall"]))
    if run.layers or layer_report.layers_by_epoch(run):
        drawn |= {
            "layers": layer_report.bars_figure(run),
            "layer-curves": layer_report.curves_figure(run),
        }
        parts.append(layer_report.section(run, dataset, drawn))
    if run.diagnosis:
        parts.append(diagnosis.section(run.diagnosis, dataset))
    if run.test is not None and run.test.usable:
        normalize = bool(run.config.get("normalize", True))
        say("finding neighbours")
        result = queries.find(run.test, normalize)
        say("choosing queries")
        parts.append(sections.retrieval(run.test, result, dataset, explain))
        say("drawing the map")
        drawn["map"] = map_data(run.test, result, dataset, normalize)
        if drawn["map"]:
            parts.append(sections.map_section(drawn["map"]))
    if run.calibration:
        parts.append(sections.calibration(run.calibration))
    extra_sections, more = generalization.sections(run.extra)
    parts, drawn = [*parts, *extra_sections], drawn | more
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
    """Needs the network and images."""
    if isinstance(dataset, FeatureDataset) or not (run / "weights.safetensors").exists():
        return None
    trained = Trained.open(run)

    def explain(first: int, second: int) -> thumbnails.Explained | None:
        try:
            return why_alike.explained(explain_items(trained, dataset, first, second))
        except UnreadableImageError:
            return None

    return explain


def _notices(run: StoredRun) -> list[str]:
    """What a reader must know before the numbers."""
    result = score_tables.no_gain(run.result)
    texts = [] if result is None else [f"What to try: {result.remedy}"]
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
    if run.result:
        on_test = score_tables.ON_TEST * score_tables.chosen_on_test(run.result)
        of_data = (score_tables.incomplete, score_tables.copies, score_tables.changed_labels)
        texts += filter(None, [on_test, *(note(run.result) for note in of_data)])
    texts += generalization.notices(run.extra)
    if any(event.test is not None for event in run.epochs):
        texts.append(score_tables.WATCHED)
    return texts


@cache
def _packed_plotly() -> str:
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()

"""The sections of a run's page; a template of the same name has the HTML of each."""

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from unseen.config.stages import TRAINED
from unseen.core.contracts import Dataset, FeatureDataset
from unseen.core.html_templates import Headline, PageSection
from unseen.reports import figures, queries, score_tables, thumbnails
from unseen.reports.figures import Plot
from unseen.reports.queries import ResultItems
from unseen.reports.stored_run import StoredRun, TestEmbeddings
from unseen.reports.tables import Cell, Table
from unseen.reports.why_alike import KEY
from unseen.training.manifest import DataMetadata, SplitMetadata
from unseen.training.nested import AT
from unseen.training.result import Result
from unseen.training.selected_weights import Selection, StageLog, StageScore

Json = dict[str, Any]
Explain = Callable[[int, int], thumbnails.Explained | None]  # two items: why they are alike

EXPLAINED = 4  # mistakes
SEARCH_PAGE = "http://127.0.0.1:8000"  # where `unseen serve` opens unless told otherwise
NOUNS = {  # data set -> what one of its classes is, and several
    "glyphs": ("character", "characters"),
    "omniglot": ("character", "characters"),
    "cub200": ("bird species", "bird species"),
    "cars196": ("car model", "car models"),
    "online_products": ("product", "products"),
    "inshop": ("garment", "garments"),
    "groceries": ("product", "products"),
}
VIEWS = {  # which queries -> the title of their tab, and what it says of them
    queries.random_draw: ("Random draw", "Drawn at random: what to expect."),
    queries.mistakes: ("Mistakes", "Drawn at random among queries whose first answer is wrong."),
    queries.hardest: (
        "Hardest",
        "Fewest right answers among the nearest; of those, the surest of a wrong one first.",
    ),
}
MEANINGS = {
    "recall": ("R@k", "at least one of the k nearest images is of the query's class"),
    "map_at_r": (
        "mAP@R",
        "with R others of its class, how many of the R nearest are right, and how early",
    ),
    "r_precision": ("R-precision", "the share of right ones among those R nearest"),
    "hierarchical_ap": (
        "H-AP",
        "average precision in which an image that shares some levels with the query counts a part",
    ),
    "ndcg": (
        "nDCG@k",
        "how much the first k images have in common with the query, early ones more, of the most "
        "possible",
    ),
    "nmi": (
        "NMI",
        "how well a blind grouping (k-means) of the test images agrees with their classes",
    ),
}
ROWS = {  # what needs no training
    "principal": "of what the head is given before training, as many as the embedding has values",
    "pixels": "the images themselves, scaled down",
}


@dataclass(frozen=True)
class View:
    """A tab of queries with their nearest neighbours."""

    title: str
    line: str
    rows: list[thumbnails.Row]
    key: str = ""  # to the explanations under its rows


@dataclass(frozen=True)
class SearchWith:
    """The way from a run, as seen from the folder the reader stands in, to the search page."""

    path: str
    page: str = SEARCH_PAGE

    @property
    def quoted(self) -> str:
        return shlex.quote(self.path)


def headline(run: StoredRun) -> Headline:
    """The result in one sentence."""
    best = run.result.score("trained", "recall@1") if run.result else None
    if run.result is None or best is None:
        return Headline(f"Run {run.name} has no score yet")
    one, several = NOUNS.get(run.result.data.name, ("class", "classes"))
    classes = run.result.split.test_classes
    unseen = f"on {classes:,} {several} it never saw" if classes else f"on {several} it never saw"
    others = "".join(
        f"; {score_tables.row_title(row)}: {_percent(score.value)}"
        for row in ("pixels", "features")
        if (score := run.result.score(row, "recall@1"))
    )
    ranks = run.result.score("trained", "map_at_r")
    beside = f" (mAP@R {_percent(ranks.value)})" if ranks else ""
    before, after = f"Finds the right {one} first in ", f" of queries{beside}, {unseen}{others}"
    result = score_tables.no_gain(run.result)
    if result is None:
        return Headline(before, _percent(best.value), after)
    return Headline(
        before, _percent(best.value), after, f"{result.head}.", result.detail, result.level
    )


def head_bars(result: Result) -> list[score_tables.ScoreRow]:
    """Recall@1 of every descriptor that has it; smaller sizes have a figure of their own."""
    rows = {name: cells for name, cells in result.scores.items() if AT not in name}
    shown = score_tables.score_rows(replace(result, scores=rows), ["recall@1"])
    return [row for row in shown if row.cells[0] and row.title != score_tables.OVER_CLASSES]


def scores(result: Result) -> PageSection:
    """The score table and how to read it."""
    counts = result.scores[score_tables.row_names(result)[0]].counts
    answering = "test classes" if result.split.gallery_items is None else "gallery"
    request = "Every test image asks for its nearest neighbours among the others"
    if "queries" in counts:
        request = (
            f"Each of {counts['queries']:,} test images asks for its nearest neighbours among "
            f"the {counts.get('gallery', counts['queries']):,} of the {answering}, itself excluded"
        )
    text = f"{request}; ties count against the method."
    if lone := counts.get("lone_queries"):
        text += f" {lone:,} without another image of their class are left out."
    if counts.get("broken"):
        text += f" {counts['broken']:,} embeddings are not finite and count as wrong."
    text += f" Small figures: {score_tables.interval(result)} (bootstrap)."
    trained = result.score("trained", "recall@1")
    if trained is not None and not math.isnan(trained.class_average):
        average = _percent(trained.class_average)
        text += f" Averaged over classes instead of queries, R@1 is {average}."
    names = score_tables.metric_names(result)
    return PageSection.of(
        "reports/scores",
        "Scores",
        shown=score_tables.page_table(result),
        explained=text,
        meanings=[MEANINGS[key] for key in MEANINGS if any(n.startswith(key) for n in names)]
        + [
            (score_tables.row_title(row), text)
            for row, text in ROWS.items()
            if row in result.scores
        ]
        + _other_labels(result),
    )


def _other_labels(result: Result) -> list[tuple[str, str]]:
    """What it means to be evaluated by a level, or by another label column."""
    one, _ = NOUNS.get(result.data.name, ("class", "classes"))
    matches = []
    for row, scored in result.scores.items():
        name, _, column = row.partition(" by ")
        if name == "trained" and column:
            number = scored.counts.get("classes")
            among = "" if number is None else f"; the test images have {number:,} of them"
            text = (
                f"an answer is right where it has the query's {column}, be it another {one}{among}"
            )
            matches.append((f"by {column}", text))
    return matches


def by_size(table: Table) -> PageSection:
    """The trained network by the size of classes."""
    text = (
        "The test classes in three parts, by how many images they have; each class counts once. "
        "A mean over queries hides what happens to small classes."
    )
    return PageSection.of(
        "reports/scores",
        "By class size",
        "sizes-of-classes",
        shown=table,
        explained=text,
        meanings=[],
    )


def stages(log: StageLog, plan: list[str]) -> PageSection:
    """The stages in their order, and the plan of the time budget."""
    first = log.stages[0].backbone
    rows = [_stage_row(stage, stage.name == log.selected, first) for stage in log.stages]
    marks = ["main" if stage.name == log.selected else "" for stage in log.stages]
    heads = ["stage", "trained", "pixels", "epoch", "R@1 %", "gain", "in mAP@R", ""]
    shown = Table(heads, rows, marks=marks)
    return PageSection.of("reports/stages", "Stages", shown=shown, plan=plan, classes=log.classes)


def _stage_row(stage: StageScore, is_selected: bool, backbone: str | None) -> list[Cell | str]:
    gain, low, high, ranked = (
        "" if value is None else f"{100 * value:+.1f}"
        for value in (stage.gain, stage.low, stage.high, stage.ranked)
    )
    shown = [*dict.fromkeys([*stage.training_sizes, stage.image_size])]
    network = "" if stage.backbone == backbone else stage.backbone or ""
    return [
        stage.name,
        Cell(TRAINED.get(stage.name, "as its keys say"), network),
        " → ".join(map(str, shown)),
        f"{stage.epoch + 1} of {stage.epochs}" if stage.epoch >= 0 else "its start",
        score_tables.percent(stage.recall),
        Cell(gain, f"{low} … {high}") if gain else "–",
        ranked or "–",
        "selected" if is_selected else "" if stage.selected else "not better",
    ]


def curves(run: StoredRun, loss: Json | None, recall: Json | None) -> PageSection:
    """Frames for the figures there are; `selected` says which epoch the dashed line marks."""
    lines = figures.lines_of(recall) if recall else []
    plots = [Plot("loss", "Training loss", "Training loss over epochs", [])] if loss else []
    plots += [Plot("recall", "Recall@1", "Recall@1 over epochs", lines)] if recall else []
    selection = run.result.selection if run.result else None
    selected = score_tables.selected(selection) if selection else ""
    return PageSection.of("reports/curves", "Learning curves", plots=plots, selected=selected)


def sizes(drawn: Json) -> PageSection:
    """Recall by the size of a nested embedding, and how a size is used."""
    title = "Recall@1 by the size of the descriptor"
    plot = Plot("sizes", "Recall@1", title, figures.lines_of(drawn))
    smallest = drawn["data"][0]["x"][0]
    return PageSection.of("reports/sizes", "Sizes", plots=[plot], smallest=smallest)


def training(run: StoredRun, dataset: Dataset) -> PageSection:
    """What was trained on what, how the model was chosen, and how to remake it."""
    metadata = _data_metadata(run.result, dataset) | _config_metadata(run.config)
    if run.result and run.result.selection:
        metadata |= _selection_metadata(run.result, run.result.selection, len(run.epochs))
    versions = {"unseen": run.manifest.unseen, **run.manifest.versions}
    return PageSection.of(
        "reports/training",
        "What was trained",
        metadata={title: value for title, value in metadata.items() if value not in (None, "")},
        command=run.manifest.command,
        test_reads=run.manifest.test_reads,
        search=None if isinstance(dataset, FeatureDataset) else SearchWith("."),
        config=run.config_text,
        versions=", ".join(f"{name} {version}" for name, version in versions.items() if version),
    )


def retrieval(
    test: TestEmbeddings, result: ResultItems, dataset: Dataset, explain: Explain | None = None
) -> PageSection:
    """Queries with their nearest neighbours, in three tabs; some mistakes are explained."""
    grids = []
    for choose, (title, line) in VIEWS.items():
        rows = [_row(query, test, result, dataset) for query in choose(result)]
        if explain is not None and choose is queries.mistakes:
            pairs = [(query, result.positions[query, 0]) for query in choose(result)[:EXPLAINED]]
            whys = [explain(int(test.indices[q]), int(test.indices[a])) for q, a in pairs]
            rows[: len(whys)] = [replace(r, why=w) for r, w in zip(rows, whys, strict=False)]
        grids.append(View(title, line, rows, KEY if any(row.why for row in rows) else ""))
    number = "cosine similarity" if result.cosine else "Euclidean distance (d)"
    return PageSection.of("reports/retrieval", "Retrieval", grids=grids, number=number)


def map_section(data: Json) -> PageSection:
    """The frame the script draws the map into."""
    return PageSection.of(
        "reports/map",
        "Map",
        shown=len(data["x"]),
        total=data["total"],
        classes=len(data["names"]),
    )


def calibration(made: Json) -> PageSection:
    """Threshold, rates, and said against true probability, from what calibration.json holds."""
    return PageSection.of("reports/calibration", "Calibration", made=made)


def _config_metadata(config: Json) -> Json:
    metadata = {
        key: _named(config.get(key)) for key in ("loss", "miner", "sampler") if config.get(key)
    }
    keys = ("backbone", "embedding_size", "epochs", "batch_size", "lr", "seed")
    titles = {"embedding_size": "embedding size", "batch_size": "batch size", "lr": "learning rate"}
    return {titles.get(key, key): config.get(key) for key in keys} | metadata


def _data_metadata(result: Result | None, dataset: Dataset) -> Json:
    data, split = (result.data, result.split) if result else (DataMetadata(), SplitMetadata())
    metadata = {
        "data": data.name or dataset.name,
        "images": f"{len(dataset) if data.items is None else data.items:,}",
        "classes": f"{len(dataset.label_names) if data.classes is None else data.classes:,}",
        "normalisation": data.normalisation,
    }
    for name, classes, items in (
        ("train", split.train_classes, split.train_items),
        ("validation", split.validation_classes, split.validation_items),
        ("test", split.test_classes, split.test_items),
    ):
        if classes is not None:
            images = f" ({items:,} images)" if items is not None else ""
            metadata[f"{name} classes"] = f"{classes:,}{images}"
    if split.shift is not None:
        metadata["shift"] = f"step {split.shift_step}, Frechet distance {split.shift:.4g}"
    marks = {"split": split.hash, "fingerprint of the data": data.fingerprint}
    return metadata | {title: mark[:16] for title, mark in marks.items() if mark}


def _selection_metadata(result: Result, selection: Selection, epochs: int) -> Json:
    again = selection.refit
    refit = f"{again.epochs} epochs on all {again.train_classes} classes" if again else None
    extent = result.extent
    done = f"{extent.epochs} of {extent.planned} planned" if extent else epochs
    recall = f"recall@1 {_percent(selection.value)}"
    return {
        "selected model": f"{score_tables.selected(selection)} ({recall})",
        "selected stage": extent and extent.stage,
        "epochs trained": done,
        "image size": extent and extent.image_size and f"{extent.image_size} px",
        "descriptor": score_tables.descriptor(result) or "the embedding",
    } | ({"trained again": refit} if refit else {})


def _named(component: Any) -> str:
    """{"name": "margin", "beta": 1.2} -> margin (beta 1.2)."""
    if not isinstance(component, dict):
        return str(component)
    options = {key: value for key, value in component.items() if key != "name" and value != "none"}
    values = ", ".join(f"{key} {value}" for key, value in options.items())
    return str(component.get("name", "")) + (f" ({values})" if values else "")


def _row(query: int, test: TestEmbeddings, result: ResultItems, dataset: Dataset) -> thumbnails.Row:
    answers = []
    for rank, position in enumerate(result.positions[query]):
        if position < 0:
            break
        is_right, closeness = bool(result.matches[query, rank]), result.closeness(query, rank)
        answers.append(thumbnails.answer(test.indices[position], dataset, is_right, closeness))
    return thumbnails.Row(thumbnails.query(test.indices[query], dataset), answers)


def _percent(value: float) -> str:
    return f"{score_tables.percent(value)}\u00a0%"  # the number and its sign stay on one line

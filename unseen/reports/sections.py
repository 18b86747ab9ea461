"""What the parts of a run's page show; a template of the same name has the HTML of each."""

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from unseen.contracts import Dataset, FeatureDataset
from unseen.nested import AT
from unseen.pages import Headline, Part
from unseen.reports import queries, tables, thumbnails
from unseen.reports.figures import PARTS, Line, Plot
from unseen.reports.queries import FoundItems
from unseen.reports.stored_run import StoredRun, TestEmbeddings
from unseen.reports.why_alike import KEY
from unseen.rungs import TRAINED
from unseen.training.manifest import DataFacts, SplitFacts
from unseen.training.result import Result
from unseen.training.selection import Ladder, RungScore, Selection

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
    "recall": ("R@k", "at least one of the k nearest pictures is of the query's class"),
    "map_at_r": (
        "mAP@R",
        "with R others of its class, how many of the R nearest are right, and how early",
    ),
    "r_precision": ("R-precision", "the share of right ones among those R nearest"),
    "hierarchical_ap": (
        "H-AP",
        "average precision in which a picture that shares some levels with the query counts a part",
    ),
    "ndcg": (
        "nDCG@k",
        "how much the first k pictures have in common with the query, early ones more, of the most "
        "possible",
    ),
    "nmi": (
        "NMI",
        "how well a blind grouping (k-means) of the test pictures agrees with their classes",
    ),
}
ROWS = {  # what needs no training
    "principal": "of what the head is given before training, as many as the embedding has values",
    "pixels": "the pictures themselves, scaled down",
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
        f"; {tables.row_title(row)}: {_percent(given.value)}"
        for row in ("pixels", "features")
        if (given := run.result.score(row, "recall@1"))
    )
    before, after = f"Finds the right {one} first in ", f" of queries, {unseen}{others}"
    found = tables.no_gain(run.result)
    if found is None:
        return Headline(before, _percent(best.value), after)
    said, _, detail = found.text.partition(": ")
    return Headline(before, _percent(best.value), after, f"{said}.", detail, found.level)


def head_bars(result: Result) -> list[tables.ScoreRow]:
    """Recall@1 of every descriptor that has it; smaller sizes have a figure of their own."""
    rows = {name: cells for name, cells in result.scores.items() if AT not in name}
    shown = tables.score_rows(replace(result, scores=rows), ["recall@1"])
    return [row for row in shown if row.cells[0] and row.title != tables.OVER_CLASSES]


def scores(result: Result) -> Part:
    """The score table and how to read it."""
    counts = result.scores[tables.row_names(result)[0]].counts
    answering = "test classes" if result.split.gallery_items is None else "gallery"
    asked = "Every test picture asks for its nearest neighbours among the others"
    if "queries" in counts:
        asked = (
            f"Each of {counts['queries']:,} test pictures asks for its nearest neighbours among "
            f"the {counts.get('gallery', counts['queries']):,} of the {answering}, itself excluded"
        )
    text = f"{asked}; ties count against the method."
    if lone := counts.get("lone_queries"):
        text += f" {lone:,} without another picture of their class are left out."
    if counts.get("broken"):
        text += f" {counts['broken']:,} embeddings are not finite and count as wrong."
    text += f" Small figures: {tables.interval(result)} (bootstrap)."
    trained = result.score("trained", "recall@1")
    if trained is not None and not math.isnan(trained.class_average):
        average = _percent(trained.class_average)
        text += f" Averaged over classes instead of queries, R@1 is {average}."
    names = tables.metric_names(result)
    return Part.of(
        "reports/scores",
        "Scores",
        table=tables.page_table(result),
        explained=text,
        meanings=[MEANINGS[key] for key in MEANINGS if any(n.startswith(key) for n in names)]
        + [(tables.row_title(row), text) for row, text in ROWS.items() if row in result.scores]
        + _further_labels(result),
    )


def _further_labels(result: Result) -> list[tuple[str, str]]:
    """What it means to be judged by a level, or by another label column."""
    one, _ = NOUNS.get(result.data.name, ("class", "classes"))
    found = []
    for row, scored in result.scores.items():
        name, _, column = row.partition(" by ")
        if name == "trained" and column:
            number = scored.counts.get("classes")
            among = "" if number is None else f"; the test pictures have {number:,} of them"
            text = (
                f"an answer is right where it has the query's {column}, be it another {one}{among}"
            )
            found.append((f"by {column}", text))
    return found


def by_size(table: tables.PageTable) -> Part:
    """The trained network by the size of classes."""
    text = (
        "The test classes in three parts, by how many pictures they have; each class counts once. "
        "A mean over queries hides what happens to small classes."
    )
    return Part.of("reports/scores", "By class size", table=table, explained=text, meanings=[])


@dataclass(frozen=True)
class LadderRow:
    """A rung: what it trained, and what it gained on the validation classes."""

    name: str
    trained: str
    network: str
    pixels: str
    epoch: str
    recall: float
    gain: str
    interval: str
    ranked: str
    verdict: str
    is_kept: bool


def ladder(climbed: Ladder, plan: list[str]) -> Part:
    """The rungs in the order they were climbed, and how the minutes were to be used."""
    own = climbed.rungs[0].backbone
    rows = [_ladder_row(rung, rung.name == climbed.kept, own) for rung in climbed.rungs]
    return Part.of("reports/ladder", "Ladder", rows=rows, plan=plan, classes=climbed.classes)


def _ladder_row(rung: RungScore, is_kept: bool, backbone: str | None) -> LadderRow:
    gain, low, high = (
        "" if value is None else f"{100 * value:+.1f}" for value in (rung.gain, rung.low, rung.high)
    )
    shown = [*dict.fromkeys([*rung.training_sizes, rung.picture_size])]
    return LadderRow(
        name=rung.name,
        trained=TRAINED.get(rung.name, "as its keys say"),
        network="" if rung.backbone in (backbone, None) else rung.backbone,
        pixels=" → ".join(map(str, shown)),
        epoch=f"{rung.epoch + 1} of {rung.epochs}" if rung.epoch >= 0 else "its start",
        recall=rung.recall,
        gain=gain,
        interval=f"{low} … {high}" if gain else "",
        ranked="" if rung.ranked is None else f"{100 * rung.ranked:+.1f}",
        verdict="the run's own" if is_kept else "" if rung.kept else "not kept",
        is_kept=is_kept,
    )


def curves(run: StoredRun, loss: Json | None, recall: Json | None) -> Part:
    """Frames for the figures there are; `kept` says which epoch the dashed line marks."""
    titles = {trace["name"] for trace in recall["data"]} if recall else set()
    lines = [Line(t, colour, style) for t, colour, _, style in PARTS.values() if t in titles]
    plots = [Plot("loss", "Training loss", "Training loss over epochs", [])] if loss else []
    plots += [Plot("recall", "Recall@1", "Recall@1 over epochs", lines)] if recall else []
    selection = run.result.selection if run.result else None
    kept = tables.kept(selection) if selection else ""
    return Part.of("reports/curves", "Learning curves", plots=plots, kept=kept)


def training(run: StoredRun, dataset: Dataset) -> Part:
    """What was trained on what, how the model was chosen, and how to remake it."""
    facts = _data_facts(run.result, dataset) | _config_facts(run.config)
    if run.result and run.result.selection:
        facts |= _selection_facts(run.result, run.result.selection, len(run.epochs))
    versions = {"unseen": run.manifest.unseen, **run.manifest.versions}
    return Part.of(
        "reports/training",
        "What was trained",
        facts={title: value for title, value in facts.items() if value not in (None, "")},
        command=run.manifest.command,
        test_reads=run.manifest.test_reads,
        search=None if isinstance(dataset, FeatureDataset) else SearchWith("."),
        config=run.config_text,
        versions=", ".join(f"{name} {version}" for name, version in versions.items() if version),
    )


def retrieval(
    test: TestEmbeddings, found: FoundItems, dataset: Dataset, explain: Explain | None = None
) -> Part:
    """Queries with their nearest neighbours, in three tabs; some mistakes are explained."""
    views = []
    for choose, (title, line) in VIEWS.items():
        rows = [_row(query, test, found, dataset) for query in choose(found)]
        if explain is not None and choose is queries.mistakes:
            pairs = [(query, found.positions[query, 0]) for query in choose(found)[:EXPLAINED]]
            whys = [explain(int(test.indices[q]), int(test.indices[a])) for q, a in pairs]
            rows[: len(whys)] = [replace(r, why=w) for r, w in zip(rows, whys, strict=False)]
        views.append(View(title, line, rows, KEY if any(row.why for row in rows) else ""))
    number = "cosine similarity" if found.cosine else "Euclidean distance (d)"
    return Part.of("reports/retrieval", "Retrieval", views=views, number=number)


def map_section(data: Json) -> Part:
    """The frame the script draws the map into."""
    return Part.of(
        "reports/map",
        "Map",
        shown=len(data["x"]),
        total=data["total"],
        classes=len(data["names"]),
    )


def calibration(made: Json) -> Part:
    """Threshold, rates, and said against true probability, from what calibration.json holds."""
    return Part.of("reports/calibration", "Calibration", made=made)


def _config_facts(config: Json) -> Json:
    facts = {
        part: _named(config.get(part)) for part in ("loss", "miner", "sampler") if config.get(part)
    }
    keys = ("backbone", "embedding_size", "epochs", "batch_size", "lr", "seed")
    titles = {"embedding_size": "embedding size", "batch_size": "batch size", "lr": "learning rate"}
    return {titles.get(key, key): config.get(key) for key in keys} | facts


def _data_facts(result: Result | None, dataset: Dataset) -> Json:
    data, split = (result.data, result.split) if result else (DataFacts(), SplitFacts())
    facts = {
        "data": data.name or dataset.name,
        "pictures": f"{len(dataset) if data.items is None else data.items:,}",
        "classes": f"{len(dataset.label_names) if data.classes is None else data.classes:,}",
    }
    for part, classes, items in (
        ("train", split.train_classes, split.train_items),
        ("validation", split.validation_classes, split.validation_items),
        ("test", split.test_classes, split.test_items),
    ):
        if classes is not None:
            pictures = f" ({items:,} pictures)" if items is not None else ""
            facts[f"{part} classes"] = f"{classes:,}{pictures}"
    if split.shift is not None:
        facts["shift"] = f"step {split.shift_step}, Frechet distance {split.shift:.4g}"
    marks = {"split": split.hash, "fingerprint of the data": data.fingerprint}
    return facts | {title: mark[:16] for title, mark in marks.items() if mark}


def _selection_facts(result: Result, selection: Selection, epochs: int) -> Json:
    again = selection.refit
    refit = f"{again.epochs} epochs on all {again.train_classes} classes" if again else None
    return {
        "model kept": f"{tables.kept(selection)} ({100 * selection.value:.1f} %)",
        "epochs trained": epochs,
        "descriptor": tables.descriptor(result) or "the embedding",
    } | ({"trained again": refit} if refit else {})


def _named(part: Any) -> str:
    """{"name": "margin", "beta": 1.2} -> margin (beta 1.2)."""
    if not isinstance(part, dict):
        return str(part)
    given = {key: value for key, value in part.items() if key != "name" and value != "none"}
    values = ", ".join(f"{key} {value}" for key, value in given.items())
    return str(part.get("name", "")) + (f" ({values})" if values else "")


def _row(query: int, test: TestEmbeddings, found: FoundItems, dataset: Dataset) -> thumbnails.Row:
    answers = []
    for rank, position in enumerate(found.positions[query]):
        if position < 0:
            break
        is_right, told = bool(found.matches[query, rank]), found.closeness(query, rank)
        answers.append(thumbnails.answer(test.indices[position], dataset, is_right, told))
    return thumbnails.Row(thumbnails.query(test.indices[query], dataset), answers)


def _percent(value: float) -> str:
    return f"{tables.percent(value)}\u00a0%"  # the number and its sign stay on one line

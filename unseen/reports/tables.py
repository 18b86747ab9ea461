"""The score table: for the terminal (rich), for Markdown and for the page, from one `result.json`.

Scores are percent. The terminal and Markdown show half the width of the 95 % interval (the longer
side where it is lopsided), the page both ends. A result chosen on test classes says so everywhere.
"""

import math
import re
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

from unseen.data.base import brief
from unseen.evaluation.evaluate import Score
from unseen.evaluation.findings import Finding
from unseen.evaluation.gain import UNTRAINED
from unseen.evaluation.long_tail import Third
from unseen.nested import AT, row_at
from unseen.outside import short_name
from unseen.pages import render
from unseen.training.manifest import ACROSS
from unseen.training.result import Result
from unseen.training.selection import Selection

WATCHED = "Test classes were watched during training."
ROWS = {
    "trained": "trained network",
    "before_refit": "before the refit",
    "untrained": UNTRAINED,
    "principal": "principal components",
    "pixels": "raw pixels",
    "features": "features as given",
}
OVER_CLASSES = "mean over classes"
METRICS = {
    "map_at_r": "mAP@R",
    "r_precision": "R-precision",
    "nmi": "NMI",
    "hierarchical_ap": "H-AP",
    "average_set_intersection": "ASI",
    "unknown_auroc": "AUROC",
    "baks": "BAKS",
    "baus": "BAUS",
}
SHARES = {"fpr_at_tpr": "FPR{:g}", "dir_at_far": "DIR at {:g} % FAR"}  # name@share
ON_TEST = "Chosen on test classes: not comparable with scores chosen on validation classes."


@dataclass(frozen=True)
class ScoreRow:
    """A scored descriptor; None where there is no number."""

    title: str
    is_main: bool
    cells: list[Score | None]


@dataclass(frozen=True)
class PageTable:
    """The table as the page shows it."""

    heads: list[str]
    rows: list[ScoreRow]
    warning: str


def metric_names(result: Result) -> list[str]:
    """Every metric of any row: recall by depth, then the known ones, then what else there is."""
    found = {name for row in result.scores.values() for name in row.metrics}
    known = list(METRICS)

    def place(name: str) -> tuple[int, int, str]:
        depth = re.fullmatch(r"recall@(\d+)", name)
        if depth:
            return (0, int(depth[1]), name)
        return (1, known.index(name), name) if name in METRICS else (2, 0, name)

    return sorted(found, key=place)


def metric_title(name: str) -> str:
    """recall@1 -> R@1, map_at_r -> mAP@R, dir_at_far@0.01 -> DIR at 1 % FAR, ./mine.py:First ->
    First."""
    name = short_name(name)
    kind, _, value = name.partition("@")
    if kind in SHARES and value:
        return SHARES[kind].format(100 * float(value))
    return METRICS.get(name, name.replace("recall@", "R@").replace("ndcg@", "nDCG@"))


def row_names(result: Result) -> list[str]:
    """The scored descriptors, the trained network first."""
    known = [name for name in ROWS if name in result.scores]
    others = set(result.scores) - set(known)
    smaller = [row_at(name, size) for size in sizes(result) for name in ("trained", "principal")]
    further = sorted(others - set(smaller), key=_by_column)
    return [*known, *further, *(name for name in smaller if name in others)]


def _by_column(row: str) -> tuple[str, int, str]:
    """Rows by another label column together, those of each as the others are."""
    name, _, column = row.partition(" by ")
    return column, list(ROWS).index(name) if name in ROWS else len(ROWS), name


def sizes(result: Result) -> list[int]:
    """The nested sizes that were judged beside the whole embedding."""
    found = (row.partition(AT) for row in result.scores)
    return sorted(int(size) for name, _, size in found if name == "trained" and size.isdigit())


def row_title(name: str, result: Result | None = None) -> str:
    """What a row is called in every table; the start of a run by what that result calls it."""
    row, _, column = name.partition(" by ")
    row, on, domain = row.partition(" on ")
    row, at, size = row.partition(AT)
    title = result.start_title if result and row == "untrained" else ROWS.get(row, row)
    title += f", {size} numbers" if at else ""
    title += f"{on}{domain}"
    return title + (f" by {column}" if column else "")


def score_rows(result: Result, metrics: list[str]) -> list[ScoreRow]:
    """Every scored descriptor with these metrics; under the trained network its means over classes,
    where they are others than those over queries."""
    rows = []
    for name in row_names(result):
        cells = [result.score(name, metric) for metric in metrics]
        rows.append(ScoreRow(row_title(name, result), name == "trained", cells))
        if name == "trained" and (averaged := _over_classes(cells)):
            rows.append(ScoreRow(OVER_CLASSES, False, averaged))
    return rows


def _over_classes(cells: list[Score | None]) -> list[Score | None]:
    """The same averaged over classes; nothing where no number differs."""
    averaged = [None if c is None or math.isnan(c.class_average) else c for c in cells]
    if all(c is None or percent(c.class_average) == percent(c.value) for c in averaged):
        return []
    return [None if c is None else Score(c.class_average) for c in averaged]


def by_size(result: Result) -> PageTable | None:
    """The trained network by the size of classes; None where they do not differ in size."""
    if not result.thirds:
        return None
    metrics = [m for m in metric_names(result) if any(m in t.metrics for t in result.thirds)]
    rows = [
        ScoreRow(
            f"{third.name}: {_sizes(third)}",
            False,
            [Score(third.metrics[m]) if m in third.metrics else None for m in metrics],
        )
        for third in result.thirds
    ]
    return PageTable([metric_title(m) for m in metrics], rows, "")


def long_tail(result: Result, metric: str = "recall@1") -> str:
    """A metric by the size of classes, in a sentence; nothing where they do not differ in size."""
    parts = [
        f"{third.name} {percent(third.metrics[metric])} ({_sizes(third)})"
        for third in result.thirds or ()
        if metric in third.metrics
    ]
    return f"{metric_title(metric)} by class size: {', '.join(parts)}." if parts else ""


def _sizes(third: Third) -> str:
    few, many = third.smallest, third.largest
    return f"{many} pictures a class" if few == many else f"{few} to {many} pictures a class"


def half_width(score: Score) -> str:
    """The longer side of its interval, as ±0.9; empty where there is none."""
    if not score.has_interval:
        return ""
    return f"±{percent(max(score.value - score.low, score.high - score.value, 0.0))}"


def percent(value: float) -> str:
    """0.8412 -> 84.1."""
    return f"{100 * value:.1f}"


def interval(result: Result) -> str:
    """What the intervals are, in words."""
    made = result.scores[row_names(result)[0]].interval
    return f"{100 * made.level:g} % interval over {made.over}"


def chosen_on_test(result: Result) -> bool:
    """The model was picked by its score on the classes it is judged on."""
    return result.selection is not None and result.selection.on == "test"


def incomplete(result: Result) -> str:
    """What the data lacked, in a sentence; nothing where they were whole."""
    return result.data.incomplete or ""


def copies(result: Result) -> str:
    """Pictures with a copy in another part, in a sentence; nothing where there are none."""
    number = getattr(result.data, ACROSS, 0)
    if not number:
        return ""
    return (
        f"Exact copies across the split: {number:,}. They make scores look better than they are; "
        "`unseen data check` names them, and with --fix FILE writes a list without them."
    )


def changed_labels(result: Result) -> str:
    """Of labels that were wrong on purpose, in a sentence; nothing where none were."""
    number, items = result.split.changed_labels, result.split.train_items
    if number is None or not items:
        return ""
    share = percent(number / items)
    return (
        f"Label noise on purpose: {number:,} of {items:,} training labels ({share} %) were "
        "changed. Scores are by the labels as given, those of training classes too."
    )


def descriptor(result: Result) -> str:
    """Which layer was judged, in words; nothing where it is the embedding, as usual."""
    chosen = result.selection.descriptor if result.selection else None
    if chosen is None:
        return ""
    if chosen.asked == "best":
        return f"Descriptor: {chosen.layer}, the best layer on {chosen.on} classes."
    return "" if chosen.layer == "embedding" else f"Descriptor: {chosen.layer}."


def kept(selection: Selection) -> str:
    """Which weights are the run's, and why, in words."""
    epoch, on = selection.epoch + 1, selection.on
    if selection.ladder is not None:
        return f"rung {selection.ladder.kept}, {kept(replace(selection, ladder=None))}"
    if selection.kept == "last":
        why = "select_by = last" if selection.by == "last" else f"too few {on} classes to choose by"
        return f"epoch {epoch}, the last: {why}"
    mean = selection.mean_of_epochs
    by = f", by {metric_title(selection.by)}" if selection.by else ""
    by += f", by the mean of {mean} epochs" if mean else ""
    if not epoch:
        return f"the start: no epoch is better on {on} classes{by}"
    return f"epoch {epoch}, the best on {on} classes{by}"


def notes(result: Result) -> list[str]:
    """What a reader must know with the numbers."""
    watched = result.monitor == "test" and not chosen_on_test(result)
    chosen = ON_TEST * chosen_on_test(result)
    texts = (
        descriptor(result),
        chosen,
        WATCHED * watched,
        incomplete(result),
        long_tail(result),
    )
    return [text for text in texts if text]


def counted(counts: dict[str, int]) -> str:
    """What an evaluation asked and left out, in words."""
    text = f"{counts['queries']:,} queries, {counts['gallery']:,} answers"
    for name, words in (
        ("lone_queries", "queries without another item of their class left out"),
        ("ties", "queries with ties, decided against them"),
        ("broken", "rows with NaN or infinity: everything scores its worst"),
    ):
        text += f"; {counts[name]:,} {words}" if counts.get(name) else ""
    return text


def score_table(result: Result) -> Table:
    """For the terminal; in a frame, for which 80 columns do, the interval is below its value."""
    counts = result.scores[row_names(result)[0]].counts
    classes = result.split.test_classes
    title = "Scores on unseen classes, %" if result.selection else "Scores, %"
    if classes is not None and "queries" in counts:
        title = f"Scores on {classes:,} unseen classes, {counts['queries']:,} queries, %"
    caption = "\n".join([f"±: {interval(result)}", *map(brief, notes(result))])
    table = Table(title=_with_verdict(title, result), caption=caption)
    table.add_column("")
    metrics = metric_names(result)
    for metric in metrics:
        table.add_column(metric_title(metric).replace("R-precision", "R-prec"), justify="right")
    for row in score_rows(result, metrics):
        name = Text(row.title.replace(", ", ",\n"))
        table.add_row(name, *map(_two_lines, row.cells), style="bold" if row.is_main else "")
    return table


def no_gain(result: Result | None) -> Finding | None:
    """What a reader must know before any score: training has added nothing, or has harmed."""
    found = result.verdict if result else None
    return None if found is None or found.level == "good" else found


def warning_line(result: Result) -> str:
    """The same with what to try, on one line; nothing where training has added something."""
    found = no_gain(result)
    return "" if found is None else f"{found.text} {found.remedy}"


def _with_verdict(title: str, result: Result) -> Text:
    found = no_gain(result)
    if found is None:
        return Text(title)
    style = "bold red" if found.level == "warning" else "bold yellow"
    return Text.assemble((found.text, style), f"\n{found.remedy}\n\n", title)


def markdown_table(result: Result) -> str:
    """For a README or an issue: `| trained network | 84.1 ±0.9 | ...`."""
    metrics = metric_names(result)
    lines = [
        "| % | " + " | ".join(metric_title(metric) for metric in metrics) + " |",
        "|---|" + "---:|" * len(metrics),
    ]
    for row in score_rows(result, metrics):
        texts = [f"{percent(c.value)} {half_width(c)}".strip() if c else "–" for c in row.cells]
        lines.append(f"| {row.title} | " + " | ".join(texts) + " |")
    return "\n".join([*lines, "", " ".join([f"±: {interval(result)}.", *notes(result)])]) + "\n"


def page_table(result: Result) -> PageTable:
    """Each value with both ends of its interval."""
    metrics = metric_names(result)
    warning = " ".join(filter(None, [ON_TEST * chosen_on_test(result), incomplete(result)]))
    return PageTable([metric_title(m) for m in metrics], score_rows(result, metrics), warning)


def html_table(result: Result) -> str:
    """The same as HTML, for a notebook."""
    table = page_table(result)
    warning = " ".join(filter(None, [warning_line(result), table.warning]))
    return render("reports/score_table", table=replace(table, warning=warning))


def _two_lines(cell: Score | None) -> Text:
    if cell is None:
        return Text("–")
    value, half = percent(cell.value), half_width(cell)
    return Text.assemble(value, "\n", (half, "dim")) if half else Text(value)

"""The score table of a run, in percent, and the sentences that belong to it."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich import table as rich_table
from rich.text import Text

from unseen.core.custom_components import short_name
from unseen.core.html_templates import render
from unseen.evaluation.evaluate import Score
from unseen.evaluation.findings import Finding
from unseen.evaluation.long_tail import Third
from unseen.evaluation.training_gain import UNTRAINED
from unseen.reports.tables import Cell, Table
from unseen.training.manifest import ACROSS
from unseen.training.nested import AT, row_at
from unseen.training.result import Result
from unseen.training.selected_weights import Selection

WATCHED = "Test classes were watched during training."
ROWS = {
    "trained": "trained network",
    "before_refit": "before the refit",
    "untrained": UNTRAINED,
    "principal": "PCA baseline",
    "pixels": "pixel baseline",
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
AT_FRACTION = {"fpr_at_tpr": "FPR{:g}", "dir_at_far": "DIR at {:g} % FAR"}  # name@share
ON_TEST = "Chosen on test classes: not comparable with scores chosen on validation classes."


@dataclass(frozen=True)
class ScoreRow:
    """A scored descriptor; None where there is no number."""

    title: str
    is_main: bool
    cells: list[Score | None]


def metric_names(result: Result) -> list[str]:
    """Every metric of any row: recall by depth, then the known ones, then what else there is."""
    matches = {name for row in result.scores.values() for name in row.metrics}
    known = list(METRICS)

    def place(name: str) -> tuple[int, int, str]:
        depth = re.fullmatch(r"recall@(\d+)", name)
        if depth:
            return (0, int(depth[1]), name)
        return (1, known.index(name), name) if name in METRICS else (2, 0, name)

    return sorted(matches, key=place)


def metric_title(name: str) -> str:
    """recall@1 -> R@1, map_at_r -> mAP@R, dir_at_far@0.01 -> DIR at 1 % FAR, ./mine.py:First ->
    First."""
    name = short_name(name)
    kind, _, value = name.partition("@")
    if kind in AT_FRACTION and value:
        return AT_FRACTION[kind].format(100 * float(value))
    return METRICS.get(name, name.replace("recall@", "R@").replace("ndcg@", "nDCG@"))


def row_names(result: Result) -> list[str]:
    """The scored descriptors, the trained network first."""
    known = [name for name in ROWS if name in result.scores]
    others = set(result.scores) - set(known)
    smaller = [row_at(name, size) for size in sizes(result) for name in ("trained", "principal")]
    by_column = sorted(others - set(smaller), key=_by_column)
    return [*known, *by_column, *(name for name in smaller if name in others)]


def _by_column(row: str) -> tuple[str, int, str]:
    """Rows by another label column together, those of each as the others are."""
    name, _, column = row.partition(" by ")
    return column, list(ROWS).index(name) if name in ROWS else len(ROWS), name


def sizes(result: Result) -> list[int]:
    """The nested sizes that were evaluated beside the whole embedding."""
    matches = (row.partition(AT) for row in result.scores)
    return sorted(int(size) for name, _, size in matches if name == "trained" and size.isdigit())


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


def by_size(result: Result) -> Table | None:
    """The trained network by the size of classes; None where they do not differ in size."""
    if not result.thirds:
        return None
    metrics = [m for m in metric_names(result) if any(m in t.metrics for t in result.thirds)]
    rows = [
        [
            f"{third.name}: {_sizes(third)}",
            *(percent(third.metrics[m]) if m in third.metrics else "–" for m in metrics),
        ]
        for third in result.thirds
    ]
    return Table(["%", *map(metric_title, metrics)], rows, numbers=range(1, 1 + len(metrics)))


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
    return f"{many} images a class" if few == many else f"{few} to {many} images a class"


def half_width(score: Score) -> str:
    """The longer side of its interval, as ±0.9; empty where there is none."""
    if not score.has_interval:
        return ""
    return f"±{percent(max(score.value - score.low, score.high - score.value, 0.0))}"


def both_ends(score: Score) -> str:
    """83.1–85.0; empty where there is no interval."""
    return f"{percent(score.low)}–{percent(score.high)}" if score.has_interval else ""


def percent(value: float) -> str:
    """0.8412 -> 84.1."""
    return f"{100 * value:.1f}"


def interval(result: Result) -> str:
    """What the intervals are, in words."""
    made = result.scores[row_names(result)[0]].interval
    return f"{100 * made.level:g} % interval over {made.over}"


def chosen_on_test(result: Result) -> bool:
    """The model was picked by its score on the classes it is evaluated on."""
    return result.selection is not None and result.selection.on == "test"


def incomplete(result: Result) -> str:
    """What the data lacked, in a sentence; nothing where they were whole."""
    return result.data.incomplete or ""


def copies(result: Result) -> str:
    """Images with a copy in another part, in a sentence; nothing where there are none."""
    number = getattr(result.data, ACROSS, 0)
    if not number:
        return ""
    return (
        f"Duplicates across the split: {number:,}. They make scores look better than they are; "
        "`unseen data check` names them, `unseen data check --fix FILE` writes a list without."
    )


def changed_labels(result: Result) -> str:
    """Of labels that were wrong on purpose, in a sentence; nothing where none were."""
    number, items = result.split.changed_labels, result.split.train_items
    if number is None or not items:
        return ""
    fraction = percent(number / items)
    return (
        f"Label noise on purpose: {number:,} of {items:,} training labels ({fraction} %) were "
        "changed. Scores are by the labels as given, those of training classes too."
    )


def descriptor(result: Result) -> str:
    """Which layer was evaluated, in words; nothing where it is the embedding, as usual."""
    chosen = result.selection.descriptor if result.selection else None
    if chosen is None:
        return ""
    if chosen.request == "best":
        return f"Descriptor: {chosen.layer}, the best layer on {chosen.on} classes."
    return "" if chosen.layer == "embedding" else f"Descriptor: {chosen.layer}."


def selected(selection: Selection) -> str:
    """Which weights are the run's, and why, in words."""
    epoch, on = selection.epoch + 1, selection.on
    if selection.stages is not None:
        return f"stage {selection.stages.selected}, {selected(replace(selection, stages=None))}"
    if selection.fallback == "last":
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
        str(result.extent or ""),
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


def table_of(result: Result, spread: Callable[[Score], str] | None = None) -> Table:
    """Every scored descriptor. A result chosen on test classes says so in every rendering.

    Args:
        spread: how an interval is written; half of its width unless named.
    """
    write, metrics = spread or half_width, metric_names(result)
    rows = score_rows(result, metrics)
    return Table(
        ["%", *map(metric_title, metrics)],
        [
            [row.title, *(Cell(percent(c.value), write(c)) if c else "–" for c in row.cells)]
            for row in rows
        ],
        " ".join([f"±: {interval(result)}.", *notes(result)]),
        marks=["main" if row.is_main else "" for row in rows],
        numbers=range(1, 1 + len(metrics)),
        warning=" ".join(filter(None, [ON_TEST * chosen_on_test(result), incomplete(result)])),
    )


def score_table(result: Result) -> rich_table.Table:
    """For the terminal; in a frame, for which 80 columns do, the interval is below its value."""
    counts = result.scores[row_names(result)[0]].counts
    classes = result.split.test_classes
    title = "Scores on unseen classes, %" if result.selection else "Scores, %"
    if classes is not None and "queries" in counts:
        title = f"Scores on {classes:,} unseen classes, {counts['queries']:,} queries, %"
    table = table_of(result)
    narrow = replace(
        table,
        heads=["", *(head.replace("R-precision", "R-prec") for head in table.heads[1:])],
        rows=[[str(name).replace(", ", ",\n"), *cells] for name, *cells in table.rows],
        caption="\n".join([f"±: {interval(result)}", *notes(result)]),
    )
    return narrow.terminal(_with_conclusion(title, result), is_stacked=True)


def no_gain(result: Result | None) -> Finding | None:
    """What a reader must know before any score: training has added nothing, has harmed, or had too
    little time."""
    matches = result.conclusion if result else None
    return None if matches is None or matches.level == "good" else matches


def warning_line(result: Result) -> str:
    """The same with what to try, on one line; nothing where training has added something."""
    matches = no_gain(result)
    return "" if matches is None else f"{matches.text} {matches.remedy}"


def _with_conclusion(title: str, result: Result) -> Text:
    matches = no_gain(result)
    if matches is None:
        return Text(title)
    style = "bold red" if matches.level == "warning" else "bold yellow"
    return Text.assemble((matches.text, style), f"\n{matches.remedy}\n\n", title)


def markdown_table(result: Result) -> str:
    """For a README or an issue: `| trained network | 84.1 ±0.9 | ...`."""
    return "\n".join(table_of(result).markdown()).rstrip("\n") + "\n"


def page_table(result: Result) -> Table:
    """Each value with both ends of its interval."""
    return table_of(result, both_ends)


def html_table(result: Result) -> str:
    """The same as HTML, for a notebook."""
    table = page_table(result)
    warning = " ".join(filter(None, [warning_line(result), table.warning]))
    return render("reports/score_table", shown=replace(table, warning=warning))

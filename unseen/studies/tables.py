"""The table of a study: for the terminal (rich), Markdown, LaTeX and the page, from one list.

Scores are percent: the mean over runs (seeds, folds) with the half width of its 95 % interval, and
the standard deviation of a single run. A method that failed says so instead of a number. A study
that selected on test classes says so in every form. Under the scores stand the comparisons: how
far each method is from the best, the verdict, and the gates that it passed or not (`gates.py`).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from unseen.reports.tables import metric_title, row_title
from unseen.statistics import Spread
from unseen.studies import document
from unseen.studies.gates import BOTH, UNJUDGED, Compared, Gate, effect_text
from unseen.studies.results import Results, Run, Standing, standings

INTERVAL = "±: half of the 95 % interval of the mean over runs"
DEVIATION = "s: standard deviation of one run"
VERDICTS = (
    "Effect: points, paired by seed, with its 95 % interval over seeds and test classes{together}. "
    "Detectable: the true effect that is seen in 80 % of all cases."
)
TOGETHER = ", for all methods held against the same one together"
PASSED, FAILED = "passed", "no: "
MOST_COLUMNS = 3  # metrics that a terminal has room for
AVERAGES = ("queries", "classes", "head", "middle", "tail")
AVERAGED = (
    "{metric} averaged over queries, over classes, and over the classes of each third by size, the "
    "largest first; mean over runs."
)
LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${sign}$" for sign in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "–": "--"}
)


@dataclass(frozen=True)
class PageRow:
    """Cells are values with what stands small under them. marks: classes of the style sheet."""

    marks: str
    cells: list[tuple[str, str]]


@dataclass(frozen=True)
class PageTable:
    """The table as the page shows it."""

    heads: list[str]
    rows: list[PageRow]
    warning: str
    notes: list[str]


class StudyTable:
    """Rows and columns as text; the forms below only differ in their marks. in_full: also the
    standard deviation of a run."""

    def __init__(
        self, results: Results, metrics: Sequence[str] | None = None, in_full: bool = True
    ) -> None:
        self.results, self.in_full = results, in_full
        self.metrics = list(metrics or results.metrics())
        self.rows = standings(results)
        self.has_experiments = len(results.experiments()) > 1
        self.is_tuned = bool(results.searches)

    @property
    def heads(self) -> list[str]:
        others = ["experiment"] if self.has_experiments else []
        tuned = ["tuning runs"] if self.is_tuned else []
        scores = [f"{metric_title(metric)} %" for metric in self.metrics]
        return [*others, self.results.plan.compared, *scores, "runs", *tuned]

    @property
    def notes(self) -> list[str]:
        """What must be said under the table."""
        signs = self._signs()
        sentences = [f"{'; '.join(signs)}."] if signs else []
        sentences += self.results.warnings
        if any(row.failed for row in self.rows):
            sentences.append("Failed runs are left out of the means, which flatters the method.")
        return sentences

    def _signs(self) -> list[str]:
        """The signs and columns that stand in the table, explained."""
        shown = [row.scores[m] for row in self.rows for m in self.metrics if m in row.scores]
        has_spread = any(not math.isnan(score.std) for score in shown)
        facts = {INTERVAL: has_spread, DEVIATION: has_spread and self.in_full}
        return [text for text, is_shown in facts.items() if is_shown]

    def cells(self, row: Standing) -> list[str]:
        """The texts of a row, in the order of the heads."""
        some = next((run.result for run in self.results.runs if run.result), None)
        name = row_title(row.method, some) if row.is_baseline else row.method
        others = [row.experiment] if self.has_experiments else []
        tuned = [str(row.tuning_runs or "")] if self.is_tuned else []
        scores = [self._score(row, row.scores.get(metric)) for metric in self.metrics]
        return [*others, name, *scores, runs_text(row), *tuned]

    def _score(self, row: Standing, spread: Spread | None) -> str:
        """61.4 ±0.8 (s 0.3); `failed` where every run failed."""
        if spread is None:
            return "failed" if row.failed and not row.done else "–"
        text = f"{100 * spread.mean:.1f}"
        if math.isnan(spread.std):
            return text
        text += f" ±{50 * (spread.high - spread.low):.1f}"
        return text + (f" (s {100 * spread.std:.1f})" if self.in_full else "")


def runs_text(row: Standing) -> str:
    failed = f", {row.failed} failed" if row.failed else ""
    return (
        f"{row.done}{failed}"
        if row.done + row.failed == row.planned
        else (f"{row.done} of {row.planned}{failed}")
    )


def terminal(results: Results, metrics: Sequence[str] | None = None) -> Table:
    """For the terminal: the first metrics only, experiments as headings, fits 80 columns."""
    made = StudyTable(results, metrics or results.metrics()[:MOST_COLUMNS], in_full=False)
    table = Table(title=results.plan.name, caption="\n".join(made.notes))
    for head in made.heads[made.has_experiments :]:
        table.add_column(head, justify="right" if head.endswith("%") else "left")
    last = None
    for row in made.rows:
        if made.has_experiments and row.experiment != last:
            table.add_section()
            table.add_row(Text(row.experiment, style="underline"))
        last = row.experiment
        style = "bold" if row.is_best else "dim" if row.is_baseline else ""
        style = "red" if row.failed and not row.done else style
        cells = [Text(cell) for cell in made.cells(row)]
        table.add_row(*cells[made.has_experiments :], style=style)
    return table


def markdown(results: Results, metrics: Sequence[str] | None = None) -> str:
    """For a README or an issue."""
    made = StudyTable(results, metrics)
    lines = ["| " + " | ".join(made.heads) + " |", "|" + "---|" * len(made.heads)]
    for row in made.rows:
        cells = [cell.replace("|", "\\|") for cell in made.cells(row)]
        cells = [f"**{cell}**" if row.is_best and cell else cell for cell in cells]
        lines.append("| " + " | ".join(cells) + " |")
    averages = averages_table(results)
    below = [*([] if averages is None else [averages]), *judged_tables(results.comparisons())]
    judged = [line for table in below for line in table.markdown()]
    return "\n".join([*lines, "", *made.notes, "", *judged]).rstrip("\n") + "\n"


def latex(results: Results, metrics: Sequence[str] | None = None) -> str:
    """For a paper: a `tabular` for the booktabs package."""
    made = StudyTable(results, metrics)
    lines = [f"% {_latex(note)}" for note in made.notes]
    lines += [f"\\begin{{tabular}}{{{'l' * len(made.heads)}}}", "\\toprule"]
    lines += [" & ".join(_latex(head) for head in made.heads) + " \\\\", "\\midrule"]
    last = None
    for row in made.rows:
        if last is not None and row.experiment != last:
            lines.append("\\midrule")
        last = row.experiment
        cells = [_latex(cell) for cell in made.cells(row)]
        cells = [f"\\textbf{{{cell}}}" if row.is_best and cell else cell for cell in cells]
        lines.append(" & ".join(cells) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\par\\footnotesize {_latex(said)}" for said in results.warnings]
    for table in judged_tables(results.comparisons()):
        lines += [
            "",
            f"% {_latex(table.caption)}",
            f"\\begin{{tabular}}{{{'l' * len(table.heads)}}}",
        ]
        cells = [" & ".join(map(_latex, row)) + " \\\\" for row in (table.heads, *table.rows)]
        lines += ["\\toprule", cells[0], "\\midrule", *cells[1:], "\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def averages_table(results: Results) -> document.Table | None:
    """The study's metric averaged over queries, over classes and over thirds of the classes by
    their size, mean over runs; None where none of them differs."""
    metric, rows, differs = results.plan.metric, [], False
    for row in standings(results):
        runs = [run for run in results.of(row.experiment, row.method) if run.result is not None]
        if row.is_baseline or not runs:
            continue
        means = [_mean_over(runs, metric, which) for which in AVERAGES]
        texts = ["–" if math.isnan(mean) else f"{100 * mean:.1f}" for mean in means]
        differs |= len(set(texts) - {"–"}) > 1
        rows.append([_in(row.experiment, row.method), *texts])
    if not differs:
        return None
    heads = [results.plan.compared, *(f"{which} %" for which in AVERAGES)]
    return document.Table(heads, rows, AVERAGED.format(metric=metric_title(metric)))


def _mean_over(runs: Sequence[Run], metric: str, which: str) -> float:
    """Of one of the averages, over runs; NaN where no run has it."""
    values = []
    for run in runs:
        assert run.result is not None, "asked before"
        found = run.result.score("trained", metric)
        sizes = {
            third.name: third.metrics.get(metric, math.nan) for third in run.result.thirds or ()
        }
        if found is not None:
            known = {"queries": found.value, "classes": found.class_average} | sizes
            values.append(known.get(which, math.nan))
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan


def judged_tables(found: Sequence[Compared]) -> list[document.Table]:
    """The comparisons with their verdicts, then the gates they had to pass; none without any."""
    return [verdict_table(found), gate_table(found)] if found else []


def verdict_table(found: Sequence[Compared]) -> document.Table:
    """One row for each comparison; published effects where there are some."""
    is_published = any(not math.isnan(each.published) for each in found)
    heads = ["arm", "against", "effect", "detectable", *["published"] * is_published, "verdict"]
    rows = []
    for each in found:
        seen = math.nan if each.effect is None else 100 * each.effect.detectable
        shown = [effect_text(each.effect), "–" if math.isnan(seen) else f"{seen:.1f}"]
        published = "–" if math.isnan(each.published) else f"{each.published:+.1f}"
        names = [_in(each.experiment, each.arm), each.against]
        rows.append([*names, *shown, *[published] * is_published, each.verdict])
    together = TOGETHER if any(each.pairs > 1 for each in found) else ""
    return document.Table(heads, rows, VERDICTS.format(together=together))


def gate_table(found: Sequence[Compared]) -> document.Table:
    """Each gate of an arm once; where several comparisons ask it, one that it does not pass."""
    shown: dict[tuple[str, str], Gate] = {}
    for each in found:
        for gate in each.gates:
            arm = f"{each.arm}, {each.against}" if gate.arm == BOTH else gate.arm
            place = (_in(each.experiment, arm), gate.name)
            if place not in shown or shown[place].passed:
                shown[place] = gate
    rows = [
        [arm, name, gate.value, PASSED if gate.passed else FAILED + gate.why]
        for (arm, name), gate in shown.items()
    ]
    return document.Table(["arm", "gate", "value", "passed"], rows, "A verdict needs all of them.")


def _in(experiment: str, arm: str) -> str:
    return f"{experiment}: {arm}" if experiment else arm


def judged_terminal(results: Results) -> Group:
    """Averages, verdicts and gates for the terminal; the words say what the colours do."""
    made, averages = [], averages_table(results)
    given = [] if averages is None else [averages]
    for each in (*given, *judged_tables(results.comparisons())):
        table = Table(*(Column(head, overflow="fold") for head in each.heads))
        table.caption = each.caption
        for row in each.rows:
            style = "red" if row[-1].startswith((FAILED, UNJUDGED)) else ""
            style = "green" if row[-1] == PASSED else style
            table.add_row(*map(Text, row[:-1]), Text(row[-1], style=style))
        made.append(table)
    return Group(*made)


def page_table(results: Results, metrics: Sequence[str] | None = None) -> PageTable:
    """For the page: the spread apart from its value."""
    made = StudyTable(results, metrics)
    rows, last = [], None
    for row in made.rows:
        marks = ["main"] * row.is_best + ["baseline"] * row.is_baseline
        marks += ["failed"] * bool(row.failed and not row.done)
        marks += ["next"] * (last is not None and row.experiment != last)
        last = row.experiment
        rows.append(PageRow(" ".join(marks), [_value_and_spread(c) for c in made.cells(row)]))
    return PageTable(made.heads, rows, " ".join(results.warnings), made.notes)


def _value_and_spread(cell: str) -> tuple[str, str]:
    parts = re.fullmatch(r"([+-]?[\d.]+) ([±(].*)", cell)
    return (parts[1], parts[2]) if parts else (cell, "")


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(LATEX)

"""A race of backbones as a table, a Pareto figure and a page."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from unseen.core.html_templates import Headline, PageSection
from unseen.evaluation.evaluate import Score
from unseen.models.candidates import PUBLISHED_ON
from unseen.reports.score_tables import percent
from unseen.reports.tables import Cell, Table
from unseen.runs.backbone_race import Race, Standing
from unseen.studies.findings import document, saved
from unseen.studies.study_figures import ACCENT, LINE, MUTED, STYLE, Drawn
from unseen.training.json_files import spelled
from unseen.training.run_folder import RunFolder

CAPTION = (
    "R@1, mAP@R: frozen features on classes of the training and validation half, 95 % interval "
    "over classes; test classes are not read. Difference: of R@1 to the best, in points, paired on "
    "the same images. A dropped candidate has seen fewer images, so compare differences. images/s: "
    "read, prepared, embedded. MB: of the weights."
)
PUBLISHED = (
    " Published: R@1 of MIEB on CUB, Cars196, Online Products, on test images of all classes: "
    "another protocol."
)


def write(race: Race, out: Path) -> Path:
    """Writes race.json, the figure and the page into a folder; gives the path of the page."""
    folder = RunFolder(out)
    folder.write_json("race.json", spelled(race))
    caption = (
        "Quality against speed, with 95 % intervals; numbers as in the table. The line joins the "
        "candidates that no other beats in both; hollow: dropped, on fewer images."
    )
    figure = saved(Drawn("pareto", caption, pareto(race)), folder)
    why = f"{race.why[0].upper()}{race.why[1:]}."
    headline = Headline(f"{race.choice.title} for {race.data}", detail=why)  # wraps anywhere
    parts = [
        PageSection.of("studies/tables", title, title.lower(), tables=tables, figures=figures)
        for title, tables, figures in (
            ("Candidates", [race_table(race)], []),
            ("Quality and speed", [], [figure]),
        )
    ]
    folder.write_text("index.html", document(race.data, headline, [], parts, "race of backbones"))
    return folder.file("index.html")


def race_table(race: Race) -> Table:
    """All candidates, the best first; the chosen one is marked."""
    heads = ["backbone", "R@1 %", "mAP@R %", "difference", "images/s", "numbers", "MB", "images"]
    has_published = any(each.published for each in race.standings)
    rows = []
    for number, each in enumerate(race.standings, start=1):
        row = [Cell(f"{number}  {each.candidate.title}"), *map(_score, each.metrics.values())]
        row += [_difference(each) if number > 1 else Cell("best")]
        row += [Cell(f"{each.images_per_second:.1f}"), Cell(f"{each.dimension:,}")]
        row += [Cell(f"{each.megabytes:.0f}"), Cell(f"{each.images:,}"), Cell(each.licence)]
        values = [each.published.get(name) for name in PUBLISHED_ON]
        text = " / ".join("–" if value is None else f"{value:.1f}" for value in values)
        rows.append([*row, Cell(text)] if has_published else row)
    heads += ["licence", "published"] if has_published else ["licence"]
    marks = ["best" if each.candidate == race.choice else "" for each in race.standings]
    caption = CAPTION + PUBLISHED * has_published
    return Table(heads, rows, caption, marks, numbers=range(1, 8))


def pareto(race: Race) -> Figure:
    """Differences in recall@1 over images per second."""
    front: list[tuple[float, float]] = []
    for each in sorted(race.standings, key=lambda each: -each.images_per_second):
        if not front or 100 * each.difference.value > front[-1][1]:
            front.append((each.images_per_second, 100 * each.difference.value))
    with matplotlib.rc_context(STYLE):
        height = 3.4 + 0.17 * len(race.standings)
        figure = Figure(figsize=(5.2, height), layout="constrained")
        ax = figure.subplots()
        ax.plot(*zip(*front, strict=True), color=MUTED, lw=1, ls=":", zorder=0)
        for number, each in enumerate(race.standings, start=1):
            is_choice = each.candidate == race.choice
            value, color = 100 * each.difference.value, ACCENT if is_choice else MUTED
            ends = [[value - 100 * each.difference.low], [100 * each.difference.high - value]]
            how: dict[str, Any] = {
                "color": color,
                "mfc": "none" if each.is_dropped else color,
                "capsize": 3,
            }
            name = f"{number}  {each.candidate.title}" + ", chosen" * is_choice
            ax.errorbar(each.images_per_second, value, ends, fmt="o", label=name, **how)
            place = each.images_per_second, value
            ax.annotate(str(number), place, (6, 5), textcoords="offset points", color=color)
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        ax.margins(x=0.15)
        ax.grid(axis="y", color=LINE, lw=0.8)
        ax.set(xlabel="images per second", ylabel="R@1 less that of the best, points")
        figure.legend(loc="outside lower left", frameon=False, fontsize=8)
    return figure


def _score(score: Score) -> Cell:
    return Cell(percent(score.value), f"±{50 * (score.high - score.low):.1f}")


def _difference(each: Standing) -> Cell:
    return Cell(f"{100 * each.difference.value:+.1f}", f"±{100 * each.half:.1f}")

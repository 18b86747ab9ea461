"""Writes docs/benchmark.md and its figures from the studies kept as evidence/generalization-*.txz.

python docs/benchmark_page.py
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from unseen.reports.tables import Table
from unseen.studies import archive
from unseen.studies.generalization import run_study as generalization
from unseen.studies.generalization.conclusion import conclusion_of
from unseen.studies.generalization.plan_runs import NAME
from unseen.studies.results import read
from unseen.studies.shift_results import COLORS, shift_curves
from unseen.studies.study_figures import LINE, MUTED, STYLE
from unseen.studies.tournament import tournament

ROOT = Path(__file__).parents[1]
FIGURES = "figures/benchmark"
LAYERS = "-layers"
TITLES = {"cars": "Cars196", "cub": "CUB-200-2011", "omniglot": "Omniglot"}
HEAD = """# The benchmark of generalisation

How do methods hold up as the distribution shifts? Each section is one study of one data set,
made by `unseen study preset generalization` ([studies](studies.md); what it measures
is in [How far does it generalise?](generalization.md)): heads on frozen features, or, in sections
named `-layers`, networks trained on the images; the learning rate of each method tuned for each
step on validation classes, on steps of splits of growing shift. A method that fails a validity
check of a conclusion says so in its row, and is left out of the answer. For your images:

    unseen study preset generalization --data my_photos/ --budget quick
    unseen study preset generalization --data my_photos/ --budget quick --layers depth=last_layers

This page is written by `python docs/benchmark_page.py` from what `unseen study report
--archive` kept in `evidence/generalization-*.txz`.
"""
ALL = """## All data sets

{answers}

What training adds to features as they are, in points of recall@1, mean over the shift:

{table}
In brackets: fails a validity check on that data set. Mean rank: over the data sets, brackets
or not: a description, no conclusion. {ranks}

![What training adds on each data set]({figure})

*One mark a data set, hollow where a validity check fails; the line is the mean.*
"""


@dataclass(frozen=True)
class Result:
    """Of one data set. gains: method -> what training adds to the area, and whether validity checks
    pass."""

    name: str
    answer: str
    gains: dict[str, tuple[float, bool]]


def write(evidence: Path, docs: Path) -> Path:
    """The page: what all data sets say of heads, then a section for each kept study."""
    sections, result = [], []
    (docs / FIGURES).mkdir(parents=True, exist_ok=True)
    for file in sorted(evidence.glob(f"generalization-*{archive.SUFFIX}")):
        name = file.stem.removeprefix("generalization-")
        with tempfile.TemporaryDirectory() as aside:
            study = archive.unpack(Path(shutil.copy(file, aside)))
            page = generalization.remake(study)
            text = (page.parent / "findings.md").read_text()
            for png in sorted(page.parent.glob("figures/*.png")):
                shutil.copy(png, docs / FIGURES / f"{name}-{png.name}")
            result += [] if name.endswith(LAYERS) else [_result(name, study)]
        sections.append(_section(name, text))
    out = docs / "benchmark.md"
    parts = [HEAD, *([_all(result, docs)] if len(result) > 1 else []), *sections]
    out.write_text("\n".join(parts), encoding="utf-8")
    return out


def _result(name: str, study: Path) -> Result:
    results = read(study.parent / "studies" / NAME)
    answer = conclusion_of(results)
    start = next(c.area.mean for c in shift_curves(results) if c.row == "untrained")
    gains = {each.method: (each.area - start, not each.reasons) for each in answer.standings}
    message = f"{answer.sentence} {answer.detail}".strip()
    return Result(TITLES.get(name, name), message, gains)


def _all(result: Sequence[Result], docs: Path) -> str:
    """Methods by data sets, the lowest mean rank first."""
    common = [m for m in result[0].gains if all(m in each.gains for each in result)]
    held = tournament({each.name: {m: each.gains[m][0] for m in common} for each in result})
    methods = [place.method for place in held.places]
    rows = [
        [place.method, *(_cell(*each.gains[place.method]) for each in result), f"{place.mean:.1f}"]
        for place in held.places
    ]
    table = Table(["method", *(each.name for each in result), "mean rank"], rows)
    ranks = (
        f"Do ranks differ at all (Friedman)? p = {held.friedman_p:.2g}. Means closer than "
        f"{held.critical_difference:.1f} are not significant (Nemenyi, 5 %, "
        f"{len(result)} data sets)."
    )
    answers = "\n".join(f"- **{each.name}**: {each.answer}" for each in result)
    figure = f"{FIGURES}/all.png"
    with matplotlib.rc_context(STYLE):
        _drawn(result, methods).savefig(docs / figure, dpi=150, bbox_inches="tight")
    lines = "\n".join(table.markdown())
    return ALL.format(answers=answers, table=lines, ranks=ranks, figure=figure)


def _cell(gain: float, passed: bool) -> str:
    return f"{100 * gain:+.1f}" if passed else f"({100 * gain:+.1f})"


def _drawn(result: Sequence[Result], methods: Sequence[str]) -> Figure:
    figure = Figure(figsize=(7.5, 0.36 * len(methods) + 1.2))
    axes = figure.add_subplot()
    for each, color in zip(result, COLORS, strict=False):
        for row, method in enumerate(methods):
            gain, passed = each.gains[method]
            fill = color if passed else "none"
            axes.plot(100 * gain, row, "o", color=color, markerfacecolor=fill, markersize=6)
        axes.plot([], [], "o", color=color, label=each.name)
    for row, method in enumerate(methods):
        mean = sum(each.gains[method][0] for each in result) / len(result)
        axes.plot([100 * mean] * 2, [row - 0.3, row + 0.3], color=MUTED, linewidth=1.5)
    axes.axvline(0, color=LINE, zorder=0)
    axes.set_yticks(range(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlabel("points of recall@1 that training adds, mean over the shift")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _section(name: str, findings: str) -> str:
    """A study's findings under its name."""
    text = re.sub(r"\A## .*", f"## {TITLES.get(name, name)}", findings)
    text = text.replace("](figures/", f"]({FIGURES}/{name}-")
    return text.replace("### ", f"### {TITLES.get(name, name)}: ")  # headings of a page must differ


if __name__ == "__main__":
    print(write(ROOT / "evidence", ROOT / "docs").relative_to(ROOT))

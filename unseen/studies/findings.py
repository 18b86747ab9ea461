"""The page of a published study: what was found in words, tables and figures with the published
values beside ours, every difference of set-up, and the command. `findings.md` is the same in
Markdown.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from unseen.core.html_templates import Headline, Page, PageSection, render
from unseen.reports.tables import Table
from unseen.studies.results import Results
from unseen.studies.study_figures import STYLE, Drawn
from unseen.training.run_folder import RunFolder

DPI = 144


@dataclass(frozen=True)
class Saved:
    """A figure whose files are written. image: a data URI."""

    name: str
    caption: str
    image: str
    width: int


def saved(drawn: Drawn, folder: RunFolder) -> Saved:
    """Writes PNG and PDF into figures/."""
    png, pdf = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):  # some ticks are made only now
        drawn.figure.set_dpi(DPI)
        FigureCanvasAgg(drawn.figure).print_png(png, metadata={"Software": None})
        drawn.figure.set_dpi(72)
        FigureCanvasPdf(drawn.figure).print_pdf(pdf, metadata={"CreationDate": None})
    for name, content in (("png", png), ("pdf", pdf)):
        folder.write_bytes(f"figures/{drawn.name}.{name}", content.getvalue())
    uri = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
    return Saved(drawn.name, drawn.caption, uri, round(96 * drawn.figure.get_figwidth()))


def document(
    name: str,
    headline: Headline,
    notices: Sequence[str],
    parts: Sequence[PageSection],
    kind: str = "study",
) -> str:
    """The page as text."""
    page = Page(kind, name, headline, notices, parts)
    return render("studies/study", page=page)


@dataclass(frozen=True)
class Title:
    """What the page is about."""

    name: str
    source: str
    shows: str
    command: str


@dataclass(frozen=True)
class Section:
    """A question and its answer: `result` says in words, with numbers, what is seen. folded: tables
    of validity checks, which stand folded at the end of the page."""

    title: str
    result: Sequence[str]
    tables: Sequence[Table] = field(default=())
    figures: Sequence[Drawn] = field(default=())
    folded: Sequence[Table] = field(default=())


def write(
    folder: RunFolder,
    title: Title,
    sections: Sequence[Section],
    differences: Sequence[str],
    results: Mapping[str, Results],
) -> Path:
    """Writes index.html, findings.md and figures/ into the study's folder."""
    first = replace(
        sections[0], result=sections[0].result[1:]
    )  # its first sentence is the headline
    parts = []
    for number, each in enumerate([first, *sections[1:]]):
        figures = [saved(drawn, folder) for drawn in each.figures]
        shown = PageSection.of(
            "studies/section", each.title, str(number), section=each, figures=figures
        )
        parts.append(shown)
    folded = [table for section in sections for table in section.folded]
    if folded:
        parts.append(PageSection.of("studies/checks", "Validity checks", "checks", tables=folded))
    runs = {name: len(result.runs) for name, result in results.items()}
    parts.append(
        PageSection.of(
            "studies/setup", "Set-up", "how", of=title, differences=differences, runs=runs
        )
    )
    page = document(title.name, Headline(sections[0].result[0]), _notices(results), parts)
    folder.write_text("findings.md", _markdown(title, sections, differences, results))
    folder.write_text("index.html", page)
    return folder.file("index.html")


def _notices(results: Mapping[str, Results]) -> list[str]:
    everything = [run for result in results.values() for run in result.runs]
    notices = list(dict.fromkeys(text for result in results.values() for text in result.warnings))
    for state, words in (("failed", "failed and are missing"), ("open", "have not been run")):
        count = sum(run.state == state for run in everything)
        notices += [f"{count} of {len(everything)} runs {words}."] if count else []
    return notices


def _markdown(
    title: Title,
    sections: Sequence[Section],
    differences: Sequence[str],
    results: Mapping[str, Results],
) -> str:
    lines = [f"## {title.name}: {title.shows}", "", f"Source: {title.source}", ""]
    lines += [f"    {title.command}", ""]
    lines += [text for message in _notices(results) for text in (message, "")]
    for section in sections:
        lines += [f"### {section.title}", ""]
        lines += [text for sentence in section.result for text in (sentence, "")]
        for table in section.tables:
            lines += table.markdown()
        for drawn in section.figures:
            lines += [f"![{drawn.caption}](figures/{drawn.name}.png)", ""]
    folded = [table for section in sections for table in section.folded]
    lines += ["### Validity checks", ""] * bool(folded)
    lines += [line for table in folded for line in table.markdown()]
    lines += ["### What differs from the source", "", *[f"- {text}" for text in differences]]
    return "\n".join(lines) + "\n"

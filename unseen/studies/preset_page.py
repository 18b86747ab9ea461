"""The page of a preset: what was found in words, tables and figures with the published values
beside ours, every difference of set-up, and the command. `findings.md` is the same in Markdown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

from unseen.reports.tables import ON_TEST
from unseen.studies.document import Part, document, figure, saved
from unseen.studies.figures import Drawn
from unseen.studies.results import Results
from unseen.training.run_folder import RunFolder


@dataclass(frozen=True)
class Title:
    """What the page is about."""

    name: str
    source: str
    shows: str
    command: str


@dataclass(frozen=True)
class Table:
    """Texts in rows; the first column names them."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A question and its answer: `found` says in words, with numbers, what is seen."""

    title: str
    found: Sequence[str]
    tables: Sequence[Table] = field(default=())
    figures: Sequence[Drawn] = field(default=())


def write(
    folder: RunFolder,
    title: Title,
    sections: Sequence[Section],
    differences: Sequence[str],
    results: Mapping[str, Results],
) -> Path:
    """Writes index.html, findings.md and figures/ into the preset's folder."""
    first = replace(sections[0], found=sections[0].found[1:])  # its first sentence is the headline
    shown = [first, *sections[1:]]
    parts = [Part(str(i), each.title, _html(each, folder)) for i, each in enumerate(shown)]
    parts.append(Part("how", "Set-up", _how(title, differences, results)))
    page = document(title.name, escape(sections[0].found[0]), _notices(results), parts)
    folder.write_text("findings.md", _markdown(title, sections, differences, results))
    folder.write_text("index.html", page)
    return folder.file("index.html")


def _notices(results: Mapping[str, Results]) -> list[str]:
    everything = [run for found in results.values() for run in found.runs]
    told = [ON_TEST] if any(found.on_test for found in results.values()) else []
    for state, words in (("failed", "failed and are missing"), ("open", "have not been run")):
        count = sum(run.state == state for run in everything)
        told += [f"{count} of {len(everything)} runs {words}."] if count else []
    return told


def _html(section: Section, folder: RunFolder) -> str:
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in section.found)
    pictures = "".join(figure(each, saved(each, folder)) for each in section.figures)
    return words + "".join(map(_html_table, section.tables)) + pictures


def _html_table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    told = f'<p class="small">{escape(table.caption)}</p>' if table.caption else ""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table class="study">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{told}"
    )


def _how(title: Title, differences: Sequence[str], results: Mapping[str, Results]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in differences)
    studies = "".join(
        f'<li><a href="../studies/{escape(name)}/report/index.html">{escape(name)}</a>: '
        f"{len(found.runs)} runs</li>"
        for name, found in results.items()
    )
    linked = f"<h3>Every run</h3><ul>{studies}</ul>" if studies else ""
    return (
        f"<p>Source: {escape(title.source)}</p><h3>What differs from the source</h3>"
        f"<ul>{items}</ul>{linked}<h3>To make it again</h3><pre>{escape(title.command)}</pre>"
    )


def _markdown(
    title: Title,
    sections: Sequence[Section],
    differences: Sequence[str],
    results: Mapping[str, Results],
) -> str:
    lines = [f"## {title.name}: {title.shows}", "", f"Source: {title.source}", ""]
    lines += [f"    {title.command}", ""]
    lines += [text for told in _notices(results) for text in (told, "")]
    for section in sections:
        lines += [f"### {section.title}", ""]
        lines += [text for sentence in section.found for text in (sentence, "")]
        for table in section.tables:
            lines += [_row(table.heads), "|" + "---|" * len(table.heads)]
            lines += [*map(_row, table.rows), "", *([table.caption, ""] if table.caption else [])]
        for drawn in section.figures:
            lines += [f"![{drawn.caption}](figures/{drawn.name}.png)", ""]
    lines += ["### What differs from the source", "", *[f"- {text}" for text in differences]]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

"""A table of results: one model, rendered for the terminal, Markdown, LaTeX and HTML."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rich import table as rich_table
from rich.text import Text

LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${sign}$" for sign in "<>|"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "–": "--"}
)
MARK_STYLES = {"": "", "best": "bold", "main": "bold", "baseline": "dim", "failed": "red"}
STATUS_STYLES = {"": "", "good": "green", "bad": "red"}


@dataclass(frozen=True)
class Cell:
    """A value with what stands small beside it.

    Args:
        text: the value.
        spread: half of an interval, a deviation; smaller, where a rendering can.
        status: whether it is good or bad news; renderings with colors show it.
    """

    text: str
    spread: str = ""
    status: Literal["", "good", "bad"] = ""

    def __str__(self) -> str:
        return f"{self.text} {self.spread}".rstrip()


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first column names them.

    Args:
        heads: of the columns, without that of the groups.
        rows: cells, or texts.
        caption: what stands below, in lines.
        marks: of each row: "best" (bold everywhere), "main", "baseline" or "failed".
        groups: of each row: rows of one group stand together; `group_head` is their column.
        numbers: which columns hold numbers.
        warning: what every rendering must say.

    Example:
        Table(["method", "R@1 %"], [["margin", Cell("61.4", "±0.8")]], numbers=[1]).markdown()
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    caption: str = ""
    marks: Sequence[str] = ()
    groups: Sequence[str] = ()
    group_head: str = ""
    numbers: Collection[int] = ()
    warning: str = ""

    def cells(self) -> list[list[Cell]]:
        """Every cell, with the column of the groups."""
        groups = self.groups or [""] * len(self.rows)
        return [
            [Cell(group)] * bool(self.groups)
            + [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
            for group, row in zip(groups, self.rows, strict=True)
        ]

    def all_heads(self) -> list[str]:
        """With the column of the groups."""
        return [self.group_head] * bool(self.groups) + list(self.heads)

    def all_marks(self) -> list[str]:
        return list(self.marks) or [""] * len(self.rows)

    def starts(self) -> list[bool]:
        """Of each row: whether a group other than the first starts with it."""
        sizes = [len(list(rows)) for _, rows in groupby(self.groups or [""] * len(self.rows))]
        return [place == 0 < number for number, size in enumerate(sizes) for place in range(size)]

    def terminal(self, title: str | Text = "", is_stacked: bool = False) -> rich_table.Table:
        """For rich; groups are headings. is_stacked: spreads stand below their values."""
        table = rich_table.Table(title=title or None, caption=self.caption)
        for place, head in enumerate(self.heads):
            justify: Literal["left", "right"] = "right" if place in self.numbers else "left"
            table.add_column(head, justify=justify, overflow="fold")
        groups, last = self.groups or [""] * len(self.rows), ""
        for group, mark, cells in zip(groups, self.all_marks(), self.cells(), strict=True):
            if group != last:
                table.add_section()
                table.add_row(Text(group, style="underline"))
            last = group
            texts = [_text(cell, is_stacked) for cell in cells[bool(self.groups) :]]
            table.add_row(*texts, style=MARK_STYLES[mark])
        return table

    def markdown(self) -> list[str]:
        """Its lines, an empty one at the end."""
        shift = bool(self.groups)
        heads = self.all_heads()
        rule = ["---:" if place - shift in self.numbers else "---" for place in range(len(heads))]
        lines = [_markdown_row(heads), "|" + "|".join(rule) + "|"]
        for mark, cells in zip(self.all_marks(), self.cells(), strict=True):
            texts = [str(cell) for cell in cells]
            is_best = mark == "best"
            lines.append(_markdown_row([f"**{t}**" if is_best and t else t for t in texts]))
        return [*lines, "", *([*self.caption.splitlines(), ""] if self.caption else [])]

    def latex(self) -> list[str]:
        """The lines of a `tabular` for the booktabs package."""
        heads = self.all_heads()
        lines = [f"% {_latex(line)}" for line in self.caption.splitlines()]
        lines += [f"\\begin{{tabular}}{{{'l' * len(heads)}}}", "\\toprule"]
        lines += [" & ".join(map(_latex, heads)) + " \\\\", "\\midrule"]
        for mark, is_start, row in zip(self.all_marks(), self.starts(), self.cells(), strict=True):
            lines += ["\\midrule"] * is_start
            texts = [_latex(str(cell)) for cell in row]
            texts = [f"\\textbf{{{t}}}" if mark == "best" and t else t for t in texts]
            lines.append(" & ".join(texts) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}"]
        return [*lines, *([f"\\par\\footnotesize {_latex(self.warning)}"] * bool(self.warning))]


def _text(cell: Cell, is_stacked: bool) -> Text:
    if is_stacked and cell.spread:
        return Text.assemble(cell.text, "\n", (cell.spread, "dim"))
    return Text(str(cell), style=STATUS_STYLES[cell.status])


def _markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(LATEX)

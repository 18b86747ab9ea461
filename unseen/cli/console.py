"""The one console of all commands: what it prints stays whole and cannot steer the terminal.

A line is never broken: the terminal wraps it, so paths and commands can be copied. A table is
framed where it fits the terminal, and only columns with overflow="fold" are folded, between words;
where it does not fit, each cell has a line of its own. In a pipe or a file, or without a box, a row
is one line, its columns two spaces apart, an empty cell a dash. Control characters, which names and
labels may hold, are shown (␛) instead of sent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

_TURNING = [*range(0x2028, 0x202F), *range(0x2066, 0x206A)]  # new lines, directions of writing
_VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "␡"} | dict.fromkeys([*range(0x80, 0xA0), *_TURNING], "�")
_WIDE = 10_000  # columns of a terminal that has room for everything

Row = tuple[Text, ...]


class Terminal(Console):
    """A rich console with the rules above."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything passes here, bars and live tables too."""
        options = options or self.options
        parts: Iterable[RenderableType] = [renderable]
        if isinstance(renderable, Table) and renderable.show_header:  # the grid of bars has none
            parts = self._laid_out(renderable, options)
        for row in parts:
            for segment in super().render(row, options):
                text, style, control = segment
                yield segment if control else Segment(text.translate(_VISIBLE), style)

    def _laid_out(self, table: Table, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Title, rows and caption."""
        rows = list(zip(*([_text(cell) for cell in c.cells] for c in table.columns), strict=True))
        framed = Table(box=table.box)
        for place, column in enumerate(table.columns):
            head, folds = _text(column.header), column.overflow == "fold"
            lines = [
                line for text in (head, *(row[place] for row in rows)) for line in text.split()
            ]
            least = None if folds else max(line.cell_len for line in lines)
            framed.add_column(
                head, justify=column.justify, overflow="fold", no_wrap=not folds, min_width=least
            )
        for cells, row in zip(rows, table.rows, strict=True):
            framed.add_row(*cells, style=row.style, end_section=row.end_section)
        wide = options.update(max_width=_WIDE)  # what it needs, whatever there is
        fits = Measurement.get(self, wide, framed).minimum <= options.max_width
        if table.title:
            yield _line(_text(table.title), "table.title")
        if not self.is_terminal or table.box is None:
            yield from _row_by_row(table, rows)
        else:
            yield from [framed] if fits else _cell_by_cell(table, rows)
        if table.caption:
            yield _line(_text(table.caption), "table.caption")


def _row_by_row(table: Table, rows: list[Row]) -> Iterator[Text]:
    for row in rows:
        nothing = "-" if any(row[1:]) else ""  # a heading is alone in its row
        for cell in row:
            cell.plain = cell.plain.replace("\n", " ") or nothing
    lines = [tuple(_text(column.header) for column in table.columns), *rows]
    for place, column in enumerate(table.columns):
        width = max(line[place].cell_len for line in lines)
        for line in lines:
            line[place].align("right" if column.justify == "right" else "left", width)
    for line, style in zip(lines, ["bold", *(row.style for row in table.rows)], strict=True):
        joined = Text("  ").join(line)
        joined.rstrip()
        yield _line(joined, style)


def _cell_by_cell(table: Table, rows: list[Row]) -> Iterator[Text]:
    """The first cell of a row, and below it, indented, the others by name."""
    for (first, *others), row in zip(rows, table.rows, strict=True):
        yield _line(first, row.style or "bold")
        for column, cell in zip(table.columns[1:], others, strict=True):
            if cell:
                cell.plain = cell.plain.replace("\n", " ")
                yield _line(Text.assemble("  ", _text(column.header), ": ", cell), row.style)


def _text(cell: RenderableType) -> Text:
    """A cell or head as text that has its final width."""
    text = cell.copy() if isinstance(cell, Text) else Text(str(cell))
    text.plain = text.plain.translate(_VISIBLE).replace("\t", " ")
    return text


def _line(text: Text, style: StyleType | None) -> Text:
    text.stylize_before(style or "")
    text.no_wrap, text.overflow = True, "ignore"
    return text


console = Terminal()
errors = Terminal(stderr=True)

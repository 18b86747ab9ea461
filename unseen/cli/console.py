"""The one console of all commands: what it prints stays whole and cannot steer the terminal.

A line is never broken: the terminal wraps it, so paths and commands can be copied. A table is
framed where it fits the terminal, and only columns with overflow="fold" are folded, between words;
where it does not fit, each cell has a line of its own. In a pipe or a file, or without a box, a row
is one line, its columns two spaces apart, an empty cell a dash. Control characters, which names and
labels may hold, are shown (␛) instead of sent.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

_TURNING = [*range(0x2028, 0x202F), *range(0x2066, 0x206A)]  # new lines, directions of writing
_VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "␡"} | dict.fromkeys([*range(0x80, 0xA0), *_TURNING], "�")
_SIDES = 3  # characters of the frame for each column; one more closes it

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
        if isinstance(renderable, Table) and not _has_widths(renderable):
            parts = _laid_out(renderable, options.max_width if self.is_terminal else None)
        for row in parts:
            for segment in super().render(row, options):
                text, style, control = segment
                yield segment if control else Segment(text.translate(_VISIBLE), style)


class _Framed(Table):
    """A table whose columns have their final widths."""


def _has_widths(table: Table) -> bool:
    """Rich may draw it: made below, or the grid of bars, which has no heads."""
    return isinstance(table, _Framed) or not table.show_header


def _laid_out(table: Table, width: int | None) -> Iterator[RenderableType]:
    """Title, rows and caption; width: of the terminal, None where there is none."""
    columns = [[_text(cell) for cell in column.cells] for column in table.columns]
    rows = list(zip(*columns, strict=True))
    if table.title:
        yield _line(_text(table.title), "table.title")
    if width is None or table.box is None:
        yield from _row_by_row(table, rows)
    else:
        framed = _framed(table, rows, width)
        yield from _cell_by_cell(table, rows) if framed is None else [framed]
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


def _framed(table: Table, rows: list[Row], width: int) -> Table | None:
    """None where the terminal is too narrow for whole names and numbers."""
    least, most = [], []
    for place, column in enumerate(table.columns):
        texts = [_text(column.header).plain, *(row[place].plain for row in rows)]
        most.append(max(cell_len(line) for text in texts for line in text.split("\n")))
        words = [cell_len(word) for text in texts for word in text.split()]
        least.append(max(words, default=0) if column.overflow == "fold" else most[-1])
    spare = width - 1 - sum(least) - _SIDES * len(least)
    if spare < 0:
        return None
    wanted = [high - low for low, high in zip(least, most, strict=True)]
    fraction = min(1.0, spare / max(1, sum(wanted)))
    made = _Framed(box=table.box)
    for column, low, more in zip(table.columns, least, wanted, strict=True):
        head, size = _text(column.header), low + int(fraction * more)
        made.add_column(head, justify=column.justify, overflow="fold", width=size)
    for cells, row in zip(rows, table.rows, strict=True):
        made.add_row(*cells, style=row.style, end_section=row.end_section)
    return made


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

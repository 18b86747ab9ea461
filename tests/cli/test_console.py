"""What is printed stays whole at any width and cannot steer the terminal."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from unseen.cli import main
from unseen.cli.console import Terminal

NAMES = ["generalized_lifted", "proxy_anchor"]
NUMBERS = ["84.1 ±0.9", "1,234.5 kB"]
PAPER = "A. Hermans, L. Beyer, B. Leibe, In Defense, 2017, https://arxiv.org/abs/1703.07737"
HOSTILE = "owl\x1b[2J\x1b]0;mine\x07\x9b31m\x08\u202e\x7f"


def table() -> Table:
    made = Table("name", Column("score", justify="right"), Column("paper", overflow="fold"))
    made.title, made.caption = "a title " * 9, "a caption " * 9
    for name, number in zip(NAMES, NUMBERS, strict=True):
        made.add_row(name, number, Text(PAPER), style="bold")
    return made


def printed(width: int, *things: object, terminal: bool = False) -> str:
    file = io.StringIO()
    options = {"color_system": None, "legacy_windows": False}
    console = Terminal(width=width, file=file, force_terminal=terminal, **options)
    for thing in things:
        console.print(thing)
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_is_never_broken(width: int, terminal: bool) -> None:
    line = "report: " + "/".join(["a folder"] * 30) + "; next: unseen train 'my birds' epochs=20"
    assert printed(width, line, Text(line, "red"), terminal=terminal) == f"{line}\n{line}\n"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_in_a_pipe_a_row_is_a_line(width: int) -> None:
    lines = printed(width, table()).splitlines()
    assert [line.split()[0] for line in lines] == ["a", "name", *NAMES, "a"]
    for name, number, line in zip(NAMES, NUMBERS, lines[2:4], strict=True):
        assert re.split(" {2,}", line) == [name, number, PAPER]


@pytest.mark.parametrize("width", [20, 40, 80, 110, 200])
def test_on_a_terminal_words_and_numbers_are_whole(width: int) -> None:
    text = printed(width, table(), terminal=True)
    for whole in (*NAMES, *NUMBERS, *PAPER.split()):
        assert whole in text
    body = [line for line in text.splitlines() if not line.startswith("a ")]
    if width >= 80:  # fits
        assert body[0].startswith("┏")
        assert max(map(len, body)) <= width
    else:
        assert body[:3] == [NAMES[0], f"  score: {NUMBERS[0]}", f"  paper: {PAPER}"]


def test_two_lines_of_a_cell_and_an_empty_one() -> None:
    made = Table("", "R@1", "p")
    made.add_row(Text("a part", style="underline"))
    made.add_row("trained network", Text.assemble("84.1", "\n", ("±0.9", "dim")), "")
    assert printed(80, made).splitlines() == [
        "                 R@1        p",
        "a part",
        "trained network  84.1 ±0.9  -",
    ]
    assert "┃ R@1  ┃" in printed(80, made, terminal=True)  # one below the other
    assert "  R@1: 84.1 ±0.9\n" in printed(20, made, terminal=True)


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_that_is_printed_steers_the_terminal(width: int, terminal: bool) -> None:
    made = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    made.add_row(HOSTILE)
    made.add_row(Text(HOSTILE))
    text = printed(width, HOSTILE, Text(HOSTILE), Group(HOSTILE), made, terminal=terminal)
    assert text.count("owl␛[2J␛]0;mine") >= 7  # a table cell by cell has no head
    assert not [sign for sign in text if not sign.isprintable() and sign != "\n"]
    assert len({len(line) for line in text.splitlines() if line[0] in "┏┃┡│└"}) <= 1  # even


def test_nor_does_what_is_shown_for_a_while() -> None:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=60)
    with Live(Group(Text(HOSTILE)), console=console) as live:
        live.refresh()
    with Progress(console=console) as bars:
        bars.add_task(HOSTILE, total=2)
        bars.refresh()
    assert "␛[2J" in file.getvalue()
    assert "\x1b[2J" not in file.getvalue()
    assert "\x1b]0;" not in file.getvalue()


def test_a_name_is_no_markup_and_no_emoji() -> None:
    assert printed(80, "birds [bold]/:dog:.jpg") == "birds [bold]/:dog:.jpg\n"


def test_there_is_one_console() -> None:
    package = Path(main.__file__).parents[1]
    with_own = [path for path in package.rglob("*.py") if " Console(" in path.read_text()]
    assert not with_own


def unseen(monkeypatch: pytest.MonkeyPatch, encoding: str, *words: str) -> tuple[int, str, str]:
    """Exit code, output, errors of a command in a pipe that takes an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(sys, "argv", ["unseen", *words])
    with pytest.raises(SystemExit) as ended:
        main.run()
    for stream in streams:
        stream.seek(0)
    return int(ended.value.code or 0), streams[0].read(), streams[1].read()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_catalogue_can_be_searched(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, text, _ = unseen(monkeypatch, encoding, "catalogue", "losses")
    result = [line for line in text.splitlines() if line.startswith("generalized_lifted ")]
    assert len(result) == 1
    assert "https://arxiv.org/abs/1703.07737" in result[0]
    assert "penalty=squared" in result[0]


def test_a_name_that_cannot_be_written_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, errors = unseen(monkeypatch, "utf-8", "train", "/no/such/\udce9.csv")
    assert code == 2
    assert errors == "unseen: no such file: /no/such/\\udce9.csv\n"

"""Bars of long work: what ends makes room, what begins again is seen again, numbers stay whole."""

import io
from collections.abc import Iterator

import pytest

from unseen.cli import terminal
from unseen.cli.console import Terminal
from unseen.cli.show_run import announce_copies
from unseen.cli.terminal import Display, display
from unseen.experiment.leaks import Copies
from unseen.training.events import ClockDecided, Epoch, Judged, Step


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Display, io.StringIO]]:
    """A terminal of 80 columns, and what is written to it."""
    screen = io.StringIO()
    console = Terminal(file=screen, force_terminal=True, force_interactive=True, width=80)
    monkeypatch.setattr(terminal, "console", console)
    with display(epochs=26) as (shown, _):
        yield shown, screen


def bars(shown: Display) -> str:
    screen = io.StringIO()
    table = shown.bars.make_tasks_table(shown.bars.tasks)
    Terminal(file=screen, width=80).print(table, soft_wrap=False)
    return screen.getvalue()


def test_bars_keep_their_numbers_whole(narrow: tuple[Display, io.StringIO]) -> None:
    shown, _ = narrow
    shown.start_training(46)
    shown.event(Step(1, 0, {"total": 1.234}, images_per_second=1234.0))
    shown.progress("embedding the training pictures", 256, 123_456)
    assert "1/1196" in bars(shown)
    assert "256/123456" in bars(shown)
    assert "pictures/s" in bars(shown)
    assert "…" not in bars(shown)


def test_what_follows_training_is_seen_alone(narrow: tuple[Display, io.StringIO]) -> None:
    shown, screen = narrow
    shown.start_training(46)
    shown.progress("embedding", 10, 10)
    assert "embedding" not in bars(shown)
    shown.progress("embedding", 0, 30)
    assert "embedding" in bars(shown), "it begins again, with other pictures"
    assert "0/30" in bars(shown)
    assert "training" in bars(shown)
    shown.event(Judged(classes=215, items=3029))
    assert "training" not in bars(shown)
    assert "judging on 3,029 items of 215 unseen classes" in screen.getvalue()


def test_a_training_that_the_clock_shortens_counts_to_its_new_end(
    narrow: tuple[Display, io.StringIO],
) -> None:
    shown, screen = narrow
    shown.start_training(10)
    shown.event(ClockDecided("epochs of head after 2", 20))
    shown.event(Epoch(1, 20, {"loss": 0.5}, lr=0.1, seconds=1.0, images_per_second=1.0))
    shown.event(ClockDecided("whole begins", False))
    assert "0/200" in bars(shown)
    assert "20 epochs of head: the minutes last for no more" in screen.getvalue()
    assert "epoch   2/20" in screen.getvalue()
    assert "whole: not begun, the minutes do not last" in screen.getvalue()


def test_one_copy_is_one_picture(capsys: pytest.CaptureFixture[str]) -> None:
    announce_copies(Copies([], across=1, relabelled=0, examples=["a.jpg = b.jpg"]))
    assert "1 picture of training classes has an exact copy" in capsys.readouterr().out


def test_copies_are_counted_and_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    copies = Copies([], across=16, relabelled=0, examples=["a.jpg = b.jpg", "c.jpg = d.jpg"])
    announce_copies(copies)
    told = capsys.readouterr().out
    assert "16 pictures of training classes have an exact copy across the split" in told
    assert "a.jpg = b.jpg; all: `unseen data check`" in told
    assert "c.jpg" not in told

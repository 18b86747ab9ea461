"""Bars of long work: what ends makes room, what begins again is seen again, numbers stay whole."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unseen.cli import main, terminal
from unseen.cli.console import Terminal
from unseen.cli.run_display import Shown, print_duplicates
from unseen.cli.terminal import Display, display
from unseen.runs.leaks import Copies
from unseen.training.distributed import Processes
from unseen.training.events import BudgetDecided, Epoch, Evaluated, Step


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
    shown.progress("embedding the training images", 256, 123_456)
    assert "1/1196" in bars(shown)
    assert "256/123456" in bars(shown)
    assert "images/s" in bars(shown)
    assert "…" not in bars(shown)


def test_what_follows_training_is_seen_alone(narrow: tuple[Display, io.StringIO]) -> None:
    shown, screen = narrow
    shown.start_training(46)
    shown.progress("embedding", 10, 10)
    assert "embedding" not in bars(shown)
    shown.progress("embedding", 0, 30)
    assert "embedding" in bars(shown), "it begins again, with other images"
    assert "0/30" in bars(shown)
    assert "training" in bars(shown)
    shown.event(Evaluated(classes=215, items=3029))
    assert "training" not in bars(shown)
    assert "evaluation on 3,029 items of 215 unseen classes" in screen.getvalue()


def test_a_training_that_the_time_budget_shortens_counts_to_its_new_end(
    narrow: tuple[Display, io.StringIO],
) -> None:
    shown, screen = narrow
    shown.start_training(10)
    shown.event(BudgetDecided("head", 20, done=2))
    shown.event(Epoch(1, 20, {"loss": 0.5}, lr=0.1, seconds=1.0, images_per_second=1.0))
    shown.event(BudgetDecided("full", 0))
    assert "0/200" in bars(shown)
    assert "20 epochs of head: the time budget allows no more" in screen.getvalue()
    assert "epoch   2/20" in screen.getvalue()
    assert "full skipped: too little is left of the time budget" in screen.getvalue()


def test_the_best_epoch_prints_what_was_compared(narrow: tuple[Display, io.StringIO]) -> None:
    """It may have a lower recall@1 than an earlier one."""
    shown, screen = narrow
    scores = {"recall@1": 0.7, "map_at_r": 0.4}
    metadata = {"lr": 0.1, "seconds": 1.0, "images_per_second": 1.0, "validation": scores}
    by = "recall@1 60.0 (mean of 3 epochs)"
    train = {"loss": 0.5, "recall@1": 0.9}
    shown.event(Epoch(1, 20, train, best=True, by=by, **metadata))
    shown.event(Epoch(2, 30, train, best=False, **metadata))
    assert (
        screen.getvalue().replace("\n", " ").count("best by recall@1 60.0 (mean of 3 epochs)") == 1
    )


def test_something_is_said_before_the_data_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with Shown().preparing(Processes()):
        assert capsys.readouterr() == ("reading the data\n", "")  # a mistake has one line


def test_that_a_command_is_loading_is_seen_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch takes seconds to import."""
    heard: list[str] = []

    @contextmanager
    def status(text: str) -> Iterator[None]:
        heard.append(text)
        yield
        heard.append("loaded")

    monkeypatch.setattr(main.errors, "status", status)
    monkeypatch.setattr(main, "loaded", heard.append)
    main.Commands(name="unseen").resolve_command(None, ["train", "glyphs"])
    assert heard == ["loading train", "train", "loaded"]


def test_one_copy_is_one_image(capsys: pytest.CaptureFixture[str]) -> None:
    print_duplicates(Copies([], across=1, relabelled=0, examples=["a.jpg = b.jpg"]))
    assert "1 image of training classes has a duplicate" in capsys.readouterr().out


def test_copies_are_counted_and_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    copies = Copies([], across=16, relabelled=0, examples=["a.jpg = b.jpg", "c.jpg = d.jpg"])
    print_duplicates(copies)
    message = capsys.readouterr().out
    assert "16 images of training classes have a duplicate across the split" in message
    assert "a.jpg = b.jpg; all: `unseen data check`" in message
    assert "c.jpg" not in message

"""Curves hold the event log's numbers."""

from pathlib import Path

import pytest

from unseen.reports import figures, stored_run
from unseen.training.event_log import summed

PACE = {"images_per_second": 90.0}


def test_loss_stands_at_fractions_of_epochs(run: Path) -> None:
    figure = figures.loss_figure(stored_run.read(run))
    assert figure is not None
    (trace,) = figure["data"]
    assert trace["x"] == [step / 4 for step in range(12)]
    assert trace["y"] == pytest.approx([1 / (step + 1) for step in range(12)], rel=1e-5)


def test_many_steps_are_averaged_in_groups(run: Path) -> None:
    steps = [
        {"event": "step", "step": s, "epoch": 0, "terms": {"total": s % 2}, **PACE}
        for s in range(4000)
    ]
    (run / "events.jsonl").write_text("".join(map(summed, steps)))
    figure = figures.loss_figure(stored_run.read(run))
    assert figure is not None
    (trace,) = figure["data"]
    assert len(trace["x"]) == figures.MOST_LOSS_POINTS
    assert set(trace["y"]) == {0.5}
    assert figure["layout"]["xaxis"]["title"]["text"] == "steps"  # no epoch is finished


def test_a_resumed_run_counts_each_step_once(run: Path) -> None:
    with (run / "events.jsonl").open("a") as event_log:
        for step in (10, 11, 12):
            event = {"event": "step", "step": step, "epoch": 2, "terms": {"total": 7.0}, **PACE}
            event_log.write(summed(event))
    figure = figures.loss_figure(stored_run.read(run))
    assert figure is not None
    assert figure["data"][0]["x"] == [step / 4 for step in range(13)]
    assert figure["data"][0]["y"][-3:] == [7.0, 7.0, 7.0]


def test_a_loss_that_is_not_finite_leaves_a_gap(run: Path) -> None:
    event = {"event": "step", "step": 12, "epoch": 3, "terms": {"total": float("nan")}, **PACE}
    with (run / "events.jsonl").open("a") as event_log:
        event_log.write(summed(event))
    figure = figures.loss_figure(stored_run.read(run))
    assert figure is not None
    assert figure["data"][0]["y"][-1] is None


def test_recall_of_training_and_validation_classes(run: Path) -> None:
    figure = figures.recall_figure(stored_run.read(run))
    assert figure is not None
    train, validation = figure["data"]
    assert train["x"] == validation["x"] == [1, 2, 3]
    assert train["y"] == [70, 80, 90]
    assert validation["y"] == [60, 60, 60]
    (line,) = figure["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 2  # epoch 1, counted from 0


def test_an_axis_of_recall_ends_at_100(run: Path) -> None:
    figure = figures.recall_figure(stored_run.read(run))
    assert figure is not None
    assert figure["layout"]["yaxis"]["autorangeoptions"] == {"clipmax": 100}

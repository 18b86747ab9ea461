"""What a study tells while it runs."""

import pytest

from unseen.cli import study
from unseen.studies.engine import StudyProgress


def test_in_a_pipe_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    begun = StudyProgress(0, 2, ("margin, seed 0",), {})
    ended = StudyProgress(1, 2, (), {"margin, seed 0": "no disk"})
    with study.progress_of() as show:
        for now in (begun, begun, ended, ended):
            show(now)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first == "starting workers ..."
    assert second == "0 of 2 runs; running: margin, seed 0"
    assert third.startswith("1 of 2 runs")
    assert fourth == "failed: margin, seed 0: no disk"


def test_the_time_left_follows_the_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials of one second, then final runs of three: those to come take three."""
    time_budget = 0.0
    monkeypatch.setattr(study.time, "monotonic", lambda: time_budget)
    pace = study._Pace()
    for ended in range(21):
        time_budget += 1.0 if ended <= 10 else 3.0
        line = study._line(StudyProgress(ended, 40, (), {}), pace)
        assert ("left" in line) == (ended > 0)
    assert line == "20 of 40 runs, 0:01:00 left"

"""What a study tells while it runs."""

import pytest

from unseen.cli import study
from unseen.studies.engine import StudyProgress


def test_in_a_pipe_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    begun = StudyProgress(0, 2, ("margin, seed 0",), {})
    ended = StudyProgress(1, 2, (), {"margin, seed 0": "no disk"})
    with study._shown(None) as tell:
        for now in (begun, begun, ended, ended):
            tell(now)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first == "starting workers ..."
    assert second == "0 of 2 runs; running: margin, seed 0"
    assert third.startswith("1 of 2 runs")
    assert fourth == "failed: margin, seed 0: no disk"

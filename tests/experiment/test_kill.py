"""A run that was killed, whenever and however often, ends like one that never was: bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 0), pytest.param(25, 1, marks=pytest.mark.slow)], ids=["3", "25"]
)
def test_a_killed_run_ends_like_one_that_never_was(kills: int, seed: int, tmp_path: Path) -> None:
    paths = [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(paths), "UNSEEN_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path), str(kills), str(seed)],
        env=os.environ | more | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sum(found["killed"].values()) == kills
    assert found["finished"] >= 1
    assert bool(found["warnings"]) == bool(found["damaged"])  # a damaged checkpoint is named
    if kills == 25:
        assert len(found["killed"]) == 6  # every kind of moment
        assert found["damaged"] > 0

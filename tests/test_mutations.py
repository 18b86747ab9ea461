"""Tests notice a broken formula: one mutant of those benchmarks/mutations.py makes."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "mutations.py"


def test_a_broken_loss_is_noticed() -> None:
    options = ["--only", "softmax", "--per-method", "1", "--processes", "1"]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| losses/softmax | " in run.stdout
    assert "1 mutants noticed, 0 not" in run.stdout

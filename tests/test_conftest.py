"""What the suite does with skips and with a tenth of the slow tests: on a small one of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

ROOT = Path(__file__).parent.parent
SUITE = """
import pytest

def test_quick():
    assert False, "not slow"

@pytest.mark.slow
@pytest.mark.parametrize("number", range(25))
def test_slow(number):
    print(f"ran {number}")
    if number == 9:
        pytest.skip("no curl")
    if number == 13:
        pytest.skip("this machine cannot fly")
    if number == 22:
        pytest.xfail("known")
"""


def test_a_tenth_is_chosen_and_of_its_skips_only_what_could_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SUITE)
    words = ["-q", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--tenth", "4", "test_small.py"],
        env=os.environ | {"UNSEEN_SKIPS": "refuse", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(f"[{number}]" for number in range(25))[4::10] == ["[13]", "[22]", "[9]"]
    assert sorted(re.findall(r"ran (\d+)", ran.stdout)) == ["13", "22", "9"]
    assert "23 deselected" in ran.stdout
    refused = ran.stdout.partition("skipped, though this machine could run it:\n")[2]
    assert refused.splitlines()[0].strip() == "test_small.py::test_slow[9]: no curl"
    assert "fly" not in ran.stdout
    assert "[22]" not in refused
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("variable", "reason", "status"),
    [("", "no curl", 0), ("refuse", "no curl", 1), ("refuse", "this machine cannot fly", 0)],
)
def test_skips_are_refused_only_where_somebody_asked_for_it(
    variable: str, reason: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "_refused", [])
    monkeypatch.setenv("UNSEEN_SKIPS", variable)
    where: Any = ("file", 1, f"Skipped: {reason}")
    report: Any = SimpleNamespace(skipped=True, longrepr=where, nodeid="a.py::test")
    conftest.pytest_runtest_logreport(report)
    conftest.pytest_collectreport(report)
    session: Any = SimpleNamespace(exitstatus=0)
    conftest.pytest_sessionfinish(session)
    assert session.exitstatus == status

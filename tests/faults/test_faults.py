"""Whatever fails: the same result, or one line that says which file and what to do."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import injection
from tests.faults.injection import DIFFERENT, GOOD, IDENTICAL, NAMED, OUTCOMES, TRACEBACK, UNNAMED
from tests.faults.page import PAGE
from tests.faults.plan import FAULTS, NUMBERS, subjects
from tests.faults.trials import Subject

ROOT = Path(__file__).parents[2]
LEAST = {"kill": 200, "flipped bit": 200, "second writer": 50}


def harness(*words: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.faults", *words]
    return subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, timeout=5400, check=False
    )


def test_a_sample_of_faults_changes_nothing_in_silence() -> None:
    subjects = "training;pack;index, exact"
    done = harness("--only", subjects, "--faults", "kill,flipped bit", "--fraction", "0.015")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kill |" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("subject", NUMBERS)
def test_no_fault_changes_anything_in_silence(subject: str) -> None:
    done = harness("--only", subject)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_tells_of_every_fault_and_of_nothing_bad() -> None:
    counts: Counter[str] = Counter()
    seen, rows = set(), Counter[tuple[str, ...]]()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 + len(OUTCOMES) or cells[1] not in FAULTS:
            continue
        numbers = dict(zip(OUTCOMES, (int(cell or 0) for cell in cells[3:]), strict=True))
        assert not any(number for outcome, number in numbers.items() if outcome not in GOOD), line
        counts[cells[1]] += sum(numbers.values())
        seen.add((cells[0], cells[1]))
        rows[*cells[:3]] += 1
    assert not [row for row, number in rows.items() if number > 1]
    assert {subject for subject, _ in seen} == set(NUMBERS)
    assert {fault for _, fault in seen} == set(FAULTS)
    assert not {fault: counts[fault] for fault, least in LEAST.items() if counts[fault] < least}
    assert sum(numbers[0] for numbers in NUMBERS.values()) >= LEAST["kill"]


@pytest.mark.parametrize("subject", subjects(), ids=lambda subject: subject.name)
def test_a_process_can_be_killed_at_every_moment(subject: Subject) -> None:
    """A function that was renamed would be no moment any more."""
    for owner, name in subject.moments.values():
        assert callable(getattr(owner, name))


def test_outcomes_of_a_fault_are_distinguished() -> None:
    def refuse() -> None:
        raise ValueError("a/file is damaged: make it again")

    def fall() -> None:
        raise KeyError("a mistake of ours")

    whole = {"reader": ["value", injection.digest({"b": 1, "a": [1.5]})]}
    cases = {
        IDENTICAL: lambda: {"a": [1.5], "b": 1},
        DIFFERENT: lambda: {"a": [1.5], "b": 2},
        NAMED: refuse,
        TRACEBACK: fall,
    }
    for outcome, reader in cases.items():
        ended = injection.Ended(0, "", injection.read_by({"reader": reader}))
        assert injection.evaluated(ended, whole, ("a/file",))[0] == outcome
    ended = injection.Ended(2, "unseen: something is wrong\n")
    assert injection.evaluated(ended, whole, ("a/file",))[0] == UNNAMED
    assert injection.evaluated(injection.Ended(-7, ""), whole, ())[0] == TRACEBACK

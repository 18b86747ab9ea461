"""A file of the current folder is no module of a child process, whatever it is called."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unseen.core import custom_components
from unseen.runs import cpu_processes
from unseen.studies import engine

MODULES = ("simplejpeg", "resource", "pickle", "typer", "weakref")  # of ours, and of Python's


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "received"
    folder.mkdir()
    for name in MODULES:
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit('it ran')\n"
        (folder / f"{name}.py").write_text(text)
    (folder / "own.py").write_text("def call(): return 7\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    return tmp_path


@pytest.mark.parametrize("name", MODULES)
def test_processes_that_share_a_batch(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cpu_processes, "CALL", f"import {name}")
    cpu_processes._started(here, 1).wait(60)
    assert not (here / "ran").exists()


def test_components_of_the_user_are_found_in_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom_components.trust("own:call")
    code = (
        "import sys; from unseen.core import custom_components; "
        "sys.exit(custom_components.find('own:call')())"
    )
    monkeypatch.setattr(cpu_processes, "CALL", code)
    assert cpu_processes._started(here, 1).wait(60) == 7
    assert not (here / "ran").exists()


def test_processes_that_multiprocessing_starts(here: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    with custom_components.safe_children():
        process.start()
    process.join(60)
    assert process.exitcode == 0
    assert not (here / "ran").exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_workers_of_a_study(here: Path) -> None:
    seen: list[str | None] = []

    def made(**given: Any) -> Any:
        return SimpleNamespace(start=lambda: seen.append(os.environ.get("PYTHONSAFEPATH")))

    engine._start(SimpleNamespace(Process=made), ("plan", "storage", "out", 1))
    assert seen == ["1"]


def test_the_command_itself(here: Path) -> None:
    words = [sys.executable, "-m", "unseen", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("unseen "), done.stderr
    assert not (here / "ran").exists()

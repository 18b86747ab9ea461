"""Where a run goes: a folder for each, one process in it, the same folder again elsewhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unseen.cli.train import run
from unseen.config import schema as configs
from unseen.core.files import InUseError
from unseen.core.reason import Reason
from unseen.runs.claim_folder import as_stored, claimed
from unseen.runs.prepare import RunContext, prepare, stored_config
from unseen.runs.run import begin, train_and_evaluate
from unseen.training.run_folder import RunFolder

HERE = Path(__file__).parent
TINY = [
    "data.max_classes=24",
    "data.size=16",
    "epochs=1",
    "sampler.steps=1",
    "batch_size=16",
    "embedding_size=8",
    'metrics=["recall@1"]',
]

pytestmark = pytest.mark.usefixtures("narrow_network")


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield stack


def test_two_runs_that_differ_get_two_folders_while_both_train(held: ExitStack) -> None:
    one = claimed(setting_of("lr=0.001"), None, held)
    two = claimed(setting_of("lr=0.002"), None, held)
    assert [one.name, two.name] == [
        "glyphs-multi_similarity-seed0",
        "glyphs-multi_similarity-seed0-2",
    ]


def test_a_name_says_in_what_a_run_differs(held: ExitStack) -> None:
    first = claimed(setting_of(), None, held)
    begin(setting_of(), RunFolder(first), "test")
    words = {
        "-lr0.002": ("lr=0.002",),
        "-alpha3.0-epochs2": ("epochs=2", "loss.alpha=3.0"),
        "-batch_size6": ("batch_size=6",),
        "-2": ("epochs=2", "lr=0.5", "batch_size=6", "embedding_size=9"),  # too much to say
    }
    for name, given in words.items():
        assert claimed(setting_of(*given), None, held).name == f"{first.name}{name}"


@pytest.mark.parametrize("named", [False, True], ids=["usual folder", "--out"])
def test_the_same_run_is_refused_while_it_trains(named: bool, held: ExitStack) -> None:
    out = Path("mine") if named else None
    claimed(setting_of(), out, held)
    with pytest.raises(InUseError, match=f"by process {os.getpid()} on .* since"):
        claimed(setting_of(), out, held)
    with pytest.raises(InUseError):
        train_and_evaluate(setting_of(), out or Path("runs/glyphs-multi_similarity-seed0"), "test")


def test_a_folder_that_was_refused_a_value_is_free_again(held: ExitStack) -> None:
    with ExitStack() as other:
        claimed(setting_of("lr=0.001"), None, other)
    assert not list(Path("runs").iterdir())
    assert claimed(setting_of("lr=0.002"), None, held).name == "glyphs-multi_similarity-seed0"


@pytest.mark.slow
def test_trainings_started_together_share_nothing(tmp_path: Path) -> None:
    paths = [str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "double_starts.py"), str(tmp_path), "25"]
    done = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        result = json.loads(line)
        (low, low_used), (high, high_used) = sorted(result["rates"].values())
        assert (low, high) == (0.001, 0.002)
        assert high_used == 2 * low_used, "each folder's config is that of its training"
        assert result["codes"][1] == 0
        for code, message in zip(result["codes"], result["told"], strict=True):
            assert code == 0 or (code == 2 and "is being written to by process" in message)
            assert message.count("\n") <= 1
        assert result["codes"].count(2) <= 1


def with_threads(context: RunContext, count: int) -> RunContext:
    """As if it had been resolved on a machine with so many cores."""
    return replace(context, config=context.config.with_values({"threads": count}))


def test_a_run_goes_on_with_its_threads_on_another_machine(held: ExitStack) -> None:
    there = with_threads(setting_of(), 7)
    out = claimed(there, None, held)
    begin(there, RunFolder(out), "test")
    held.close()
    here = setting_of()
    assert here.config.training.machine.threads == 1
    assert claimed(here, None, held) == out
    going_on = as_stored(here, RunFolder(out))
    assert going_on.config == there.config
    assert Reason("threads", 7, "as when the run began") in going_on.reasons
    held.close()
    with pytest.raises(ValueError, match=r"other settings \(threads\)"):
        claimed(setting_of("threads=2"), out, held)
    assert claimed(setting_of("threads=7"), None, held) == out


def test_a_finished_run_is_shown_again_on_another_machine(
    held: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configs.make(configs.override({}, TINY))
    result = train_and_evaluate(with_threads(prepare(config), 2), Path("run"), "test")
    assert run(config, Path("run")) == result
    assert "run is finished" in capsys.readouterr().out
    assert stored_config(RunFolder(Path("run"))).training.machine.threads == 2


def test_a_run_begun_on_a_gpu_says_so_where_there_is_none(
    held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = setting_of()
    there = context.config.with_values({"device": "cuda"})
    RunFolder(Path("run")).write_text("config.toml", there.to_toml())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="was trained on cuda, which is not here"):
        claimed(context, Path("run"), held)

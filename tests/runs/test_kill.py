"""A run that was killed loses little (that it ends like one that never was: `tests/faults`)."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unseen.config import schema as configs
from unseen.runs.cached_activations import Activations
from unseen.runs.prepare import Callbacks, computing, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.training_loop import TrainingLoop
from unseen.training.run_folder import RunFolder

FROZEN = [
    "data.max_classes=24",
    "data.size=16",
    "epochs=2",
    "batch_size=16",
    "embedding_size=16",
    "sampler.steps=3",
    "workers=0",
    "threads=1",
    'metrics=["recall@1"]',
    "freeze_until=stage1",
    "cached_augmentations=1",
]
BUILDER = """
import sys, time
from pathlib import Path
from unseen.config import schema as configs
from unseen.runs.prepare import Callbacks, prepare
from unseen.runs.training_loop import TrainingLoop
from unseen.training.run_folder import RunFolder

def tell(what, done, total):
    if what == "through the frozen layers":
        print(done, flush=True)
        time.sleep(0.2)

setting = prepare(configs.make(configs.override({}, sys.argv[2:])))
TrainingLoop(setting, RunFolder(Path(sys.argv[1])), Callbacks([], tell)).run()
"""


def test_a_killed_process_loses_at_most_one_block_of_activations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    context = prepare(configs.make(configs.override({}, FROZEN)))
    command = [sys.executable, "-c", BUILDER, str(tmp_path / "run"), *FROZEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done = [int(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGKILL)
    with computing(context):
        fit = TrainingLoop(context, RunFolder(tmp_path / "run"), Callbacks())
    assert isinstance(fit.source, Activations)
    finished = int(fit.source.training.files[0].done().sum())
    assert 64 * finished >= done[-1], "what was told is on disk"
    left = len(fit.source.training.missing(context.split.train))
    assert left > 0
    result = train_and_evaluate(context, tmp_path / "run", "test")
    assert result == train_and_evaluate(context, tmp_path / "never killed", "test")

"""A project in an empty folder with a loss, miner, network, data set and metric of its own, none of
which is in the package: it trains, goes on after a kill, is evaluated, studied, reported,
searched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unseen
from unseen.cli.main import app
from unseen.core import custom_components
from unseen.studies.engine import Study, local_storage, stored_plan
from unseen.studies.study_file import make

PARTS = """
'''Parts of a project of its own.'''
import numpy as np
import torch
from PIL import Image
from torch import nn

from unseen.metrics.base import Retrieval
from unseen.models import InputSpec


class Net(nn.Module):
    input_spec = InputSpec(16)

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Conv2d(3, 8, 5, stride=3)
        self.late = nn.Linear(8 * 16, 8)

    def forward(self, images):
        return self.late(torch.relu(self.early(images)).flatten(1))


class Pull(nn.Module):
    '''margin: how much nearer the positive must be.'''

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, labels, tuples=None):
        x = nn.functional.normalize(embeddings)
        anchor, positive, negative = tuples
        near = (x[anchor] - x[positive]).square().sum(1)
        far = (x[anchor] - x[negative]).square().sum(1)
        return (near - far + self.margin).clamp(min=0).mean()


def next_ones(embeddings, labels):
    '''Each item with the next of its class and the next of another.'''
    place = torch.arange(len(labels))
    same = labels[:, None] == labels[None]
    ahead = (place[None] - place[:, None] - 1) % len(labels)
    positive = torch.where(same & (place[:, None] != place), ahead, 10**6).argmin(1)
    negative = torch.where(~same, ahead, 10**6).argmin(1)
    return place, positive, negative


class Stripes:
    '''Images of stripes: the class is their direction.'''

    classes = [f"direction {number:02}" for number in range(12)]

    def __init__(self, number: int = 72) -> None:
        self.targets = [index % 12 for index in range(number)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        angle = np.pi * (self.targets[index] + 0.2 * rng.random()) / 12
        y, x = np.mgrid[:16, :16]
        wave = np.sin(x * np.cos(angle) + y * np.sin(angle) + rng.random())
        grey = (127 + 100 * wave + 20 * rng.random((16, 16))).astype(np.uint8)
        return Image.fromarray(grey), self.targets[index]


class First(Retrieval):
    def depth(self, max_relevant):
        return 1

    def on_queries(self, neighbors):
        return neighbors.matches[:, 0].double()
"""
DYING = """
import os, signal, sys
from unseen.cli.main import app
from unseen.runs import callbacks, training_loop as loops

def dying(step):
    def after(self, *given):
        if len(list(self.folder.file("checkpoint").glob("*.pt"))) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *given)
    return after

callbacks.SECONDS_BETWEEN_CHECKPOINTS = 0.0
loops.TrainingLoop._after_step = dying(loops.TrainingLoop._after_step)
app(sys.argv[1:])
"""
WORDS = [
    "train",
    "./parts.py:Stripes",
    "network=./parts.py:Net",
    "loss=./parts.py:Pull",
    "loss.margin=0.3",
    "miner=./parts.py:next_ones",
    'metrics=["recall@1","./parts.py:First"]',
    "epochs=3",
    "batch_size=8",
    "sampler.per_class=2",
    "workers=0",
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parts.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(custom_components.TRUST_VARIABLE, "")
    return tmp_path


def command(*words: str) -> None:
    app(list(words), standalone_mode=False)


def scores(run: str) -> dict[str, float]:
    message = json.loads(Path(run, "result.json").read_text())["scores"]["trained"]["metrics"]
    return {name: cell["value"] for name, cell in message.items()}


def test_by_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(*WORDS, "--out", "runs/a")
    result = scores("runs/a")
    assert result["recall@1"] == result["First"] > 0.5
    parts = json.loads(Path("runs/a/manifest.json").read_text())["custom_components"]
    assert {"./parts.py:Net", "./parts.py:Pull", "./parts.py:next_ones"} <= set(parts)
    command("evaluate", "run", "runs/a")
    command("report", "runs/a")
    assert "First" in Path("runs/a/report/index.html").read_text()
    Path("new").mkdir()
    stripes = custom_components.find("./parts.py:Stripes")()
    for index in range(6):
        stripes[index][0].save(f"new/{index}.png")
    command("index", "build", "runs/a", "new", "--out", "my.index")
    capsys.readouterr()
    command("search", "my.index", "new/3.png")
    assert "new/3.png" in capsys.readouterr().out


def test_a_killed_run_goes_on_but_not_with_another_source(project: Path) -> None:
    words = [*WORDS, "epochs=4"]
    command(*words, "--out", "runs/whole")
    words += ["--out", "runs/killed"]
    done = subprocess.run(
        [sys.executable, "-c", DYING, *words], stdout=subprocess.DEVNULL, check=False
    )
    assert done.returncode == -signal.SIGKILL
    source = Path("parts.py").read_text()
    Path("parts.py").write_text(source + "\n# changed\n")
    with pytest.raises(ValueError, match="is not the one runs/killed began with"):
        command(*words)
    Path("parts.py").write_text(source)
    command(*words)
    assert scores("runs/killed") == scores("runs/whole")


def test_a_study_with_two_workers(project: Path) -> None:
    values = {
        "name": "own",
        "seeds": [0],
        "config": {
            "data": "./parts.py:Stripes",
            "network": "./parts.py:Net",
            "miner": "./parts.py:next_ones",
            "epochs": 1,
            "batch_size": 8,
            "workers": 0,
            "sampler": {"name": "m_per_class", "per_class": 2},
        },
        "factors": {"loss": ["./parts.py:Pull", "triplet"]},
    }
    custom_components.trust(values)
    results = Study(make(values)).run(project / "study", jobs=2)
    assert [run.state for run in results.runs] == ["done", "done"]
    storage = local_storage(project / "study")
    with pytest.raises(ValueError, match="would run code of"):
        stored_plan("own", storage)
    named = sorted(custom_components.references_in(values))
    assert stored_plan("own", storage, named).name == "own"
    Path("parts.py").write_text(Path("parts.py").read_text() + "\n# changed\n")
    custom_components.trust(values)
    with pytest.raises(ValueError, match="not the one the study began with"):
        stored_plan("own", storage, named)


def test_in_python(project: Path) -> None:
    custom_components.trust(
        [f"./parts.py:{name}" for name in ("Net", "Pull", "next_ones", "Stripes", "First")]
    )
    from_file = {
        name: custom_components.find(f"./parts.py:{name}") for name in ("Net", "Pull", "next_ones")
    }
    stripes = custom_components.find("./parts.py:Stripes")()
    given = {
        "network": from_file["Net"](),
        "loss": from_file["Pull"](margin=0.3),
        "miner": from_file["next_ones"],
        "metrics": ["recall@1", custom_components.find("./parts.py:First")()],
        "sampler": {"name": "m_per_class", "per_class": 2},
        "batch_size": 8,
        "workers": 0,
        "out": "runs/python",
        "progress": False,
    }
    run = unseen.fit(stripes, epochs=3, **given)
    trained = run.scores.loc["trained"]
    assert trained["recall@1"] == trained["First"] > 0.5
    assert "trained network" in str(run)
    assert run.embed([stripes[0][0], stripes[1][0]]).shape == (2, 8)
    assert run.report().exists()
    start = dict(given, network=from_file["Net"]())  # another start: the finished run is only read
    assert unseen.fit(stripes, epochs=3, **start).scores.equals(run.scores)
    with pytest.raises(ValueError, match="an object passed from Python"):
        command("evaluate", "run", "runs/python")
    trained = unseen.load("runs/python", network=from_file["Net"]())
    assert np.allclose(trained.embed([stripes[0][0]]), run.embed([stripes[0][0]]))


def test_a_stranger_is_not_run(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    command(*WORDS, "--out", "runs/a")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.move("runs", elsewhere / "runs")
    os.chdir(elsewhere)
    with pytest.raises(ValueError, match=r"no such file: \./parts\.py"):
        command("evaluate", "run", "runs/a")
    Image.new("RGB", (16, 16)).save("x.png")
    with pytest.raises(ValueError, match=r"no such file: \./parts\.py"):
        unseen.load("runs/a")

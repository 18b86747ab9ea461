"""A run with adapters: frozen layers run once, a stop changes nothing, what is used is merged."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

from unseen.config import schema as configs
from unseen.core import custom_components
from unseen.export.inference import as_input
from unseen.export.torch_program import write_program
from unseen.neighbors.space import to_sphere
from unseen.runs.few_shots import LowRankLayers
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.run_networks import stored_network
from unseen.runs.trained_run import Trained
from unseen.training.events import Event, Step
from unseen.training.run_folder import RunFolder

BODY = """
from torch import nn

class Body(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.point = nn.Sequential(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.late = nn.Conv2d(12, 16, 1)
"""
WORDS = [
    "backbone=./body.py:Body",
    "adapter=lora",
    "adapter.rank=2",
    "data.max_classes=24",
    "data.size=16",
    "image_size=16",
    "batch_size=16",
    "embedding_size=8",
    "epochs=2",
    "sampler.steps=4",
    "workers=0",
    'metrics=["recall@1"]',
]


def context_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*WORDS, *words])))


@pytest.fixture
def _body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "body.py").write_text(BODY)
    monkeypatch.chdir(tmp_path)
    custom_components.trust("./body.py:Body")
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


class StoppedError(Exception):
    """A crash at a chosen step."""


def stop(event: Event) -> None:
    if isinstance(event, Step) and event.step == 5:
        raise StoppedError


@pytest.mark.usefixtures("_body")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("freeze_until=early", "cached_augmentations=2", "layers_every=1"),
            id="kept activations",
        ),
        pytest.param(
            ("micro_batch=6", "ema=0.9", "schedule.warm_up=1", "descriptor=point"),
            id="whole network",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_stopped_and_resumed_equals_never_stopped(words: tuple[str, ...], tmp_path: Path) -> None:
    context = context_of(*words)
    whole = train_and_evaluate(context, tmp_path / "whole", "test")
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path / "parts", "test", Callbacks([stop]))
    assert train_and_evaluate(context, tmp_path / "parts", "test") == whole
    one, two = (
        RunFolder(tmp_path / run).read_tensors("weights.safetensors") for run in ("whole", "parts")
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
    adapted = [name for name in one if name.endswith(".B")]
    assert len(adapted) == 2
    assert whole.selection is not None
    if whole.selection.epoch > 0:
        assert all(bool(one[name].any()) for name in adapted)
    check_shots(context, tmp_path / "whole")


def check_shots(context: RunContext, path: Path) -> None:
    """New adapters start with what was evaluated, move it, and leave the run as it was."""
    before = (path / "weights.safetensors").read_bytes()
    network = stored_network(context, RunFolder(path)).eval()
    layers = LowRankLayers(context, network, Callbacks())
    shots, rest = torch.arange(8).view(4, 2), torch.arange(8, 40)
    start, same = layers.evaluated(shots, rest, steps=0)
    with np.load(path / "embeddings" / "test.npz") as kept:
        evaluated = torch.from_numpy(kept["embeddings"])[rest]
    if context.config.evaluation.descriptor == "embedding":
        assert torch.allclose(start, evaluated, atol=1e-5)
    assert torch.allclose(start, same, atol=1e-6)
    again, moved = layers.evaluated(shots, rest, steps=2)
    assert torch.equal(again, start)
    assert not torch.allclose(moved, start, atol=1e-3)
    assert torch.equal(layers.evaluated(shots, rest, steps=2)[1], moved), "each begins anew"
    assert (path / "weights.safetensors").read_bytes() == before


@pytest.mark.usefixtures("_body")
def test_what_is_used_and_exported_is_merged_and_what_was_evaluated(tmp_path: Path) -> None:
    context = context_of("select=test", "lr=0.01", "loss=proxy_anchor")
    train_and_evaluate(context, tmp_path / "run", "test")
    trained = Trained.open(tmp_path / "run")
    assert not any(parametrize.is_parametrized(m) for m in trained.network.modules())
    with np.load(tmp_path / "run" / "embeddings" / "test.npz") as kept:
        items, evaluated = kept["indices"][:8], torch.from_numpy(kept["embeddings"][:8])
    images = [context.dataset.image(int(item)) for item in items]
    assert torch.allclose(trained.embed(images), to_sphere(evaluated), atol=1e-5)
    request = as_input(trained, images)
    assert write_program(trained, tmp_path / "model.pt2", request) < 1e-5
    check_shots(context, tmp_path / "run")

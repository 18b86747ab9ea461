"""A head that begins with the principal directions of what it is given."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.config import schema as configs
from unseen.models.network import EmbeddingNetwork
from unseen.runs.prepare import Callbacks, RunContext, computing, prepare
from unseen.runs.run import train, train_and_evaluate
from unseen.runs.training_loop import TrainingLoop
from unseen.training.events import Event, Step
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

WORDS = [
    "data.max_classes=16",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "sampler.steps=3",
    "ema=0.9",
    "workers=0",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.runs.cached_activations.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def setting_of(*words: str) -> RunContext:
    message = [*WORDS, "threads=1", "epochs=2", "head.start=principal", *words]
    return prepare(configs.make(configs.override({}, message)))


@pytest.mark.parametrize("frozen", ["none", "stage2"])
def test_the_first_step_finds_the_directions_in_the_head(frozen: str, tmp_path: Path) -> None:
    context = setting_of(f"freeze_until={frozen}")
    fit = TrainingLoop(context, RunFolder(tmp_path), Callbacks())
    assert isinstance(fit.network, EmbeddingNetwork)
    with computing(context):
        pooled = fit.source.embed(context.split.train, field="pooled").double()
        fit._prepare(is_new=True)
    weight = fit.network.head.get_parameter("fc1.weight").detach().double()
    torch.testing.assert_close(weight @ weight.T, torch.eye(16, dtype=torch.float64))
    rows = pooled / pooled.norm(dim=1, keepdim=True)
    kept = (rows @ weight.T).square().sum()
    most = torch.linalg.svdvals(rows)[:16].square().sum()
    torch.testing.assert_close(kept, most, rtol=1e-5, atol=0.0)
    assert fit.trainer.average is not None
    with fit.trainer.averaged():
        assert torch.equal(fit.network.head.get_parameter("fc1.weight").double(), weight)


def test_the_untrained_network_is_what_training_began_with(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    values = 0.3 * generator.normal(size=(120, 24))
    values[:, :4] += 3 * generator.normal(size=(12, 4))[labels]  # only these tell classes apart
    np.savez(tmp_path / "x.npz", features=values.astype(np.float32), labels=labels)
    words = ["data=arrays", f"data.root={tmp_path / 'x.npz'}", "batch_size=16", "epochs=1"]
    result = {}
    for start in ("auto", "default"):
        message = [*words, "embedding_size=4", f"head.start={start}"]
        context = prepare(configs.make(configs.override({}, message)))
        scores = train_and_evaluate(context, tmp_path / start, "test").scores
        result[start] = scores["untrained"].metrics["recall@1"].value
        assert scores["principal"].metrics["recall@1"].value == pytest.approx(
            _recall_of_components(values, labels, 4)
        )
    given = scores["features"].metrics["recall@1"].value
    assert result["auto"] == pytest.approx(given, abs=0.1)
    assert result["auto"] > result["default"]


def _recall_of_components(values: np.ndarray, labels: np.ndarray, size: int) -> float:
    """Of the last six classes along the longest directions of the others, by loops."""
    rows = values.astype(np.float32).astype(np.float64)
    directions = np.linalg.svd(
        np.array([row / math.sqrt(sum(row**2)) for row in rows[labels < 5]]), full_matrices=False
    )[2][:size]
    test = [(directions @ row, label) for row, label in zip(rows, labels, strict=True) if label > 5]
    right = 0
    for i, (one, label) in enumerate(test):
        cosines = [
            (one @ other / math.sqrt((one @ one) * (other @ other)), name == label)
            for j, (other, name) in enumerate(test)
            if j != i
        ]
        right += max(cosines)[1]
    return right / len(test)


def test_a_run_that_goes_on_does_not_start_again(tmp_path: Path) -> None:
    whole = train(setting_of(), tmp_path / "whole", "test")

    class StoppedError(Exception):
        pass

    def stop(event: Event) -> None:
        if isinstance(event, Step) and event.step == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(setting_of(), tmp_path / "parts", "test", Callbacks([stop]))
    assert train(setting_of(), tmp_path / "parts", "test") == whole
    files = [RunFolder(tmp_path / name) for name in ("whole", "parts")]
    weights = [folder.read_tensors("weights.safetensors") for folder in files]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])

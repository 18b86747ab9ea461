"""What was kept rots or is lost: it is noticed, named and trained anew."""

import random
import shutil
from pathlib import Path

import pytest
import torch

from tests.faults.injection import flip, lose
from unseen.cli.train import run
from unseen.config import schema as configs
from unseen.models.weights import packed, read_tensors
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.training.events import Event, Step
from unseen.training.run_folder import RunFolder

TINY = [
    "data.max_classes=24",
    "data.size=16",
    "epochs=3",
    "sampler.steps=2",
    "batch_size=16",
    "embedding_size=8",
    "workers=0",
    "loss=margin",
    'metrics=["recall@1"]',
]
RUNS = ("whole", "deleted", "rotten")
PRINCIPAL = ["freeze_until=pooled", "head.start=principal"]

pytestmark = pytest.mark.usefixtures("narrow_network")


@pytest.fixture
def _saving_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


def stop_after(epoch: int) -> Callbacks:
    def listen(event: Event) -> None:
        if isinstance(event, Step) and event.epoch == epoch:
            raise KeyboardInterrupt

    return Callbacks([listen])


def test_no_flipped_bit_passes_for_other_weights(tmp_path: Path) -> None:
    tensors = {
        "layer.weight": torch.randn(3, 4),
        "layer.count": torch.tensor(7),
        "half": torch.randn(5).bfloat16(),
        "none": torch.zeros(0, 2),
    }
    path, draw = tmp_path / "weights.safetensors", random.Random(0)
    path.write_bytes(packed(tensors))
    whole = path.read_bytes()
    for _ in range(200):
        path.write_bytes(whole)
        flip(path, draw.randrange(len(whole)), draw.randrange(8))
        try:
            result = read_tensors(path)
        except ValueError:
            continue
        assert result.keys() == tensors.keys()
        assert all(torch.equal(result[name], tensors[name]) for name in tensors)


def test_files_of_others_need_no_checksum(tmp_path: Path) -> None:
    from safetensors.torch import save_file  # here: ours are written by `packed`

    save_file({"weight": torch.ones(2)}, tmp_path / "theirs.safetensors")
    assert read_tensors(tmp_path / "theirs.safetensors")["weight"].tolist() == [1, 1]


@pytest.mark.usefixtures("_saving_every_step")
@pytest.mark.parametrize(
    ("name", "harm"), [("weights.safetensors", flip), ("objective.safetensors", lose)]
)
def test_what_was_kept_before_a_stop_is_trained_anew(
    name: str, harm: object, tmp_path: Path
) -> None:
    context, message = setting_of(), list[str]()
    whole = train_and_evaluate(context, tmp_path / "whole", "test")
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(context, tmp_path / "run", "test", stop_after(2))
    assert callable(harm)
    harm(tmp_path / "run" / name)
    result = train_and_evaluate(context, tmp_path / "run", "test", Callbacks(warn=message.append))
    assert result == whole
    assert len(message) == 1
    assert name in message[0]
    assert "training starts anew" in message[0]
    places = [sorted(p.name for p in (tmp_path / n).rglob("*.pt")) for n in ("run", "whole")]
    assert places[0] == places[1], "no checkpoint of the lost training is left"
    for kept in ("weights.safetensors", "objective.safetensors"):
        assert RunFolder(tmp_path / "run").file(kept).read_bytes() == (
            (tmp_path / "whole" / kept).read_bytes()
        )


@pytest.mark.usefixtures("_saving_every_step")
def test_without_the_start_of_its_head_training_starts_anew(tmp_path: Path) -> None:
    context = setting_of(*PRINCIPAL)
    whole = train_and_evaluate(context, tmp_path / "whole", "test")
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(context, tmp_path / "run", "test", stop_after(1))
    (tmp_path / "run" / "start.safetensors").unlink()
    assert train_and_evaluate(context, tmp_path / "run", "test") == whole


def test_a_finished_run_says_that_it_is_damaged_and_its_command_trains_it_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    config = configs.make(configs.override({}, TINY))
    result = train_and_evaluate(prepare(config), out, "test")
    vectors = Trained.open(out).vectors(torch.zeros(1, 3, 16, 16))
    flip(out / "weights.safetensors")
    with pytest.raises(ValueError, match=r"weights.safetensors is damaged.*the command of the run"):
        Trained.open(out)
    assert run(config, out) == result
    assert "is finished" not in capsys.readouterr().out
    assert torch.equal(Trained.open(out).vectors(torch.zeros(1, 3, 16, 16)), vectors)
    assert run(config, out) == result
    assert "is finished" in capsys.readouterr().out


def test_the_weights_of_another_run_are_one_line(tmp_path: Path) -> None:
    train_and_evaluate(setting_of("epochs=1"), tmp_path, "test")
    RunFolder(tmp_path).write_tensors("weights.safetensors", {"other": torch.ones(1)})
    with pytest.raises(ValueError, match=r"do not fit this network; .* missing"):
        Trained.open(tmp_path)


@pytest.mark.parametrize("layer", ["stage1", "pooled"])
def test_a_cache_that_is_deleted_or_rots_while_it_is_used_changes_nothing(
    layer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    context, message = setting_of(f"freeze_until={layer}", "cached_augmentations=1"), list[str]()
    whole = train_and_evaluate(context, tmp_path / "whole", "test")

    def delete(event: Event) -> None:
        if isinstance(event, Step) and event.step == 3:
            shutil.rmtree(tmp_path / "cache" / "activations")

    callbacks = Callbacks([delete], warn=message.append)
    assert train_and_evaluate(context, tmp_path / "deleted", "test", callbacks) == whole
    assert message
    assert all("made again" in text for text in message)
    for records in (tmp_path / "cache").rglob("records"):
        flip(records, 100, bit=6)
    message.clear()
    callbacks = Callbacks(warn=message.append)
    assert train_and_evaluate(context, tmp_path / "rotten", "test", callbacks) == whole
    assert any(text.startswith("1 of") for text in message)
    weights = {(tmp_path / run / "weights.safetensors").read_bytes() for run in RUNS}
    assert len(weights) == 1

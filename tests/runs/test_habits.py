"""Habits of training on a few characters: optimisers, precision, averaged weights, warm-up, early
stopping, and what a run says when its space collapses."""

from pathlib import Path

import pytest
import torch

from unseen.config import build
from unseen.config import schema as configs
from unseen.runs.callbacks import Validation
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train, train_and_evaluate
from unseen.runs.select_epoch import START
from unseen.training.checkpoint import Checkpoints
from unseen.training.event_log import read
from unseen.training.events import Epoch, Event, Step, StoppedEarly, Warned
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = [
    "data.max_classes=24",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=1",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
]


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


class StoppedError(Exception):
    """A crash at a chosen step."""


def stop_at(step: int) -> Callbacks:
    def listen(event: Event) -> None:
        if isinstance(event, Step) and event.step == step:
            raise StoppedError

    return Callbacks([listen])


@pytest.mark.parametrize(
    ("optimizer", "precision"), [("adam", "float32"), ("adam", "bf16"), ("sgd", "fp16")]
)
def test_optimizers_and_precisions_train(optimizer: str, precision: str, tmp_path: Path) -> None:
    words = (f"optimizer={optimizer}", f"precision={precision}", "schedule=constant")
    train_and_evaluate(setting_of(*words), tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


def test_the_averaged_weights_are_the_ones_kept(tmp_path: Path) -> None:
    context = setting_of("ema=0.999", "sampler.steps=3")
    train_and_evaluate(context, tmp_path, "test")
    state = Checkpoints(tmp_path / "checkpoint").newest(print)
    assert state is not None
    kept = RunFolder(tmp_path).read_tensors("weights.safetensors")
    for name, value in kept.items():
        assert torch.equal(value, state["trainer"]["average"][name])
    assert any(not torch.equal(v, state["trainer"]["network"][k]) for k, v in kept.items())


def test_training_stops_when_nothing_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.4, 0.5, 0.6, 0.6, 0.55, 0.9])  # the start's first
    monkeypatch.setattr(
        Validation,
        "_scores",
        lambda self, embeddings, items: {
            "recall@1": 0.9 if items is self.monitored else next(scores),
            "map_at_r": 0.5,
        },
    )
    monkeypatch.setattr("unseen.runs.select_epoch.FEW", 0)
    result = train_and_evaluate(setting_of("epochs=9", "patience=2"), tmp_path, "test")
    assert result.selection is not None
    assert (result.selection.epoch, result.selection.stopped_after) == (1, 4)
    events = read(tmp_path / "events.jsonl")
    assert [e.epoch for e in events if isinstance(e, Epoch)] == [0, 1, 2, 3]
    assert events[-1] == StoppedEarly(epochs=4, best=1)


def test_training_stops_where_its_start_is_not_surpassed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, scores: list[tuple[float, float]], *words: str) -> tuple[int, int | None]:
        looks = iter(scores)

        def shown(fit: Validation, _: torch.Tensor, items: object) -> dict[str, float]:
            pair = (0.9, 0.9) if items is fit.monitored else next(looks)
            return dict(zip(("recall@1", "map_at_r"), pair, strict=True))

        monkeypatch.setattr(Validation, "_scores", shown)
        selection = train(setting_of("epochs=5", "gain_by=2", *words), tmp_path / name, "test")
        return selection.epoch, selection.stopped_after

    monkeypatch.setattr("unseen.runs.select_epoch.FEW", 0)
    start, lower, mixed, higher = (0.5, 0.5), (0.4, 0.4), (0.4, 0.6), (0.6, 0.4)
    assert run("behind", [start, lower, lower]) == (START, 2)
    assert read(tmp_path / "behind" / "events.jsonl")[-1] == StoppedEarly(epochs=2, best=START)
    assert run("ahead", [start, higher, *[lower] * 4]) == (0, None)
    assert run("in one of two", [start, lower, mixed, lower]) == (START, 3)
    assert run("looked at later", [start, lower], "validate_every=3") == (START, 3)


def test_training_stops_where_recall_is_full_and_nothing_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precision = [0.5, 0.6, 0.7, 0.7, 0.7, 0.9]  # the start's first

    def run(name: str, recall: float, *words: str) -> tuple[int, int | None]:
        looks = iter(precision)
        scores = lambda fit, _, items: {  # noqa: E731
            "recall@1": recall,
            "map_at_r": 0.5 if items is fit.monitored else next(looks),
        }
        monkeypatch.setattr(Validation, "_scores", scores)
        context = setting_of("epochs=5", *words)
        selection = train(context, tmp_path / name, "test")
        return selection.epoch, selection.stopped_after

    monkeypatch.setattr("unseen.runs.select_epoch.FEW", 0)
    monkeypatch.setattr("unseen.runs.callbacks.FULL_PATIENCE", 2)
    assert run("full", 1.0) == (1, 4)
    message = read(tmp_path / "full" / "events.jsonl")[-1]
    assert message == StoppedEarly(epochs=4, best=1, full=True)
    assert "recall@1 is 100 %" in str(message)
    assert run("nearly", 0.999) == (4, None)
    assert run("asked", 1.0, "patience=5") == (4, None)


def test_only_new_layers_move_in_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    context = setting_of("epochs=2", "schedule.warm_up=1", "loss=proxy_anchor")
    body = "backbone.body."
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path, "test", stop_at(3))
    after = RunFolder(tmp_path).read_tensors("weights.safetensors")
    start = build.network(context.config).state_dict()
    trained = {name for name, _ in build.network(context.config).named_parameters()}
    moved = {name for name in trained if not torch.equal(after[name], start[name])}
    assert moved == {name for name in trained if not name.startswith(body)}
    train_and_evaluate(context, tmp_path, "test")
    last = Checkpoints(tmp_path / "checkpoint").newest(print)
    assert last is not None
    state = last["trainer"]["network"]
    assert {name for name in trained if not torch.equal(state[name], start[name])} == trained


def test_a_collapsed_space_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike = torch.ones(1, 16)
    monkeypatch.setattr(
        RunContext,
        "embed_fields",
        lambda self, net, transform, items, progress, fields: dict.fromkeys(
            fields, alike.repeat(len(items), 1)
        ),
    )
    heard: list[str] = []
    train_and_evaluate(setting_of(), tmp_path, "test", Callbacks(warn=heard.append))
    assert heard[0].startswith("epoch 1: all embeddings are alike")
    assert [type(e) for e in read(tmp_path / "events.jsonl")][-2:] == [Warned, Epoch]

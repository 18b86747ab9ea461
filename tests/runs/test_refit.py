"""A refit trains on all training classes for the chosen length, can be stopped anywhere, and the
result holds the scores of both trainings."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.config import schema as configs
from unseen.evaluation.training_gain import Extent
from unseen.runs.calibrate_run import calibrate_run
from unseen.runs.callbacks import Validation
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.refit import all_training_classes
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.training.event_log import read
from unseen.training.events import BudgetDecided, Epoch, Event, Refitted, Step
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

WORDS = [
    "data.max_classes=24",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=3",
    "sampler.steps=2",
    "workers=0",
    'metrics=["recall@1"]',
    "loss=proxy_anchor",
    "ema=0.5",
    "refit=true",
]
CHOSEN = 1  # the epoch that is best on validation classes, counted from 0


class StoppedError(Exception):
    """A crash at a chosen event."""


@pytest.fixture(autouse=True)
def _chosen_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_epoch(monkeypatch)


def choose_epoch(patch: pytest.MonkeyPatch) -> None:
    """The same epoch is always the best one, and every step is kept."""

    def recall(self: Validation, loop: Any, event: Any) -> Any:
        scores = dict.fromkeys(("recall@1", "map_at_r"), 0.5 if event.epoch == CHOSEN else 0.1)
        return replace(
            event, **{part: (getattr(event, part) or {}) | scores for part in self.items}
        )

    patch.setattr(Validation, "_with_scores", recall)
    patch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*WORDS, *words])))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        choose_epoch(patch)
        train_and_evaluate(setting_of(), path, "test")
    return path


def test_it_trains_on_all_training_classes_for_the_chosen_length(whole: Path) -> None:
    folder, context = RunFolder(whole), setting_of()
    split, labels = context.split, context.dataset.labels
    message = folder.read_json("result.json")["selection"]["refit"]
    everything = np.union1d(split.train, split.validation)
    assert message == {
        "epochs": CHOSEN + 1,
        "train_classes": len(np.unique(labels[everything])),
        "train_items": len(everything),
    }
    assert np.array_equal(all_training_classes(context).split.train, everything)
    proxies = folder.read_tensors("objective.safetensors")["loss.proxies"]
    assert len(proxies) == message["train_classes"]
    before = folder.read_tensors("selected/objective.safetensors")["loss.proxies"]
    assert len(before) == len(np.unique(labels[split.train]))
    epochs = [e for e in read(whole / "refit/events.jsonl") if isinstance(e, Epoch)]
    assert [event.epoch for event in epochs] == [0, 1]
    assert read(whole / "events.jsonl")[-1] == Refitted(**message, steps=2)


def test_manifest_and_result_tell_of_it_and_test_is_read_once(whole: Path) -> None:
    manifest = RunFolder(whole).read_json("manifest.json")
    assert manifest["refit"]["epochs"] == CHOSEN + 1
    assert [read["purpose"] for read in manifest["test_reads"]] == ["final evaluation"]
    result = RunFolder(whole).read_json("result.json")
    assert set(result["scores"]) == {
        "trained", "before_refit", "untrained", "principal", "pixels"
    }  # fmt: skip
    weights = [
        RunFolder(whole).read_tensors(f"{place}weights.safetensors")
        for place in ("", "selected/", "refit/")
    ]
    assert all(torch.equal(weights[0][key], weights[2][key]) for key in weights[0])
    assert any(not torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def nth(kind: type[Event], number: int) -> Callbacks:
    """Stops at the `number`-th event of a kind."""
    seen: list[Event] = []

    def listen(event: Event) -> None:
        seen.extend([event] if isinstance(event, kind) else [])
        if len(seen) == number:
            raise StoppedError

    return Callbacks([listen])


@pytest.mark.parametrize(("event", "number"), [(Step, 3), (Refitted, 1), (Step, 9)])
def test_stopped_anywhere_and_resumed_equals_never_stopped(
    event: type[Event], number: int, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoppedError):
        train_and_evaluate(setting_of(), tmp_path, "test", nth(event, number))
    train_and_evaluate(setting_of(), tmp_path, "test")
    check_equal(whole, tmp_path)


def check_equal(one: Path, two: Path) -> None:
    for name in ("result.json", "weights.safetensors", "selected/weights.safetensors"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    for name in ("events.jsonl", "refit/events.jsonl"):
        assert [type(e) for e in read(one / name)] == [type(e) for e in read(two / name)]


def test_stopped_while_its_weights_take_their_place(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RunFolder.write_tensors
    left = [2]  # selected/weights, weights; then it breaks

    def breaking(self: RunFolder, name: str, tensors: Any) -> None:
        if (self.path / "selected").exists() or name.startswith("selected"):
            left[0] -= 1
        if left[0] < 0:
            raise StoppedError
        write(self, name, tensors)

    monkeypatch.setattr(RunFolder, "write_tensors", breaking)
    with pytest.raises(StoppedError):
        train_and_evaluate(setting_of(), tmp_path, "test")
    monkeypatch.setattr(RunFolder, "write_tensors", write)
    train_and_evaluate(setting_of(), tmp_path, "test")
    check_equal(whole, tmp_path)


def test_the_best_layer_is_chosen_before_the_refit(whole: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    train_and_evaluate(setting_of("descriptor=best"), tmp_path, "test")
    selection = RunFolder(tmp_path).read_json("selection.json")
    stored = json.loads((tmp_path / "refit/selection.json").read_text())
    assert selection["descriptor"] == stored["descriptor"]
    assert selection["descriptor"]["on"] == "validation"


def test_a_length_chosen_on_test_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="refit needs a length chosen on validation classes"):
        configs.make({"refit": True, "select": "test"})


def test_one_that_would_be_late_is_given_up(tmp_path: Path) -> None:
    spent = [0.0]
    callbacks = slow_refit(spent)
    context = replace(setting_of("time_budget=10"), began=0.0, now=lambda: spent[0])
    for _ in range(2):  # the second time all is read back
        train_and_evaluate(context, tmp_path, "test", callbacks)
        folder = RunFolder(tmp_path)
        result = folder.read_json("result.json")
        assert "refit" not in folder.read_json("manifest.json")
        assert result["selection"].get("refit") is None
        assert "before_refit" not in result["scores"]
        decided = folder.read_json("clock.json")["decided"]
        assert decided["refit (head) after 1"] == 1
        (event,) = (e for e in read(tmp_path / "events.jsonl") if isinstance(e, BudgetDecided))
        assert str(event).startswith("refit stopped: too little is left of the time budget")
    assert calibration_warnings(context, tmp_path) == []


def test_calibration_says_that_it_trained_on_the_validation_classes(whole: Path) -> None:
    (warning,) = calibration_warnings(setting_of(), whole)
    assert warning.startswith("refit trained on the validation classes too")


def calibration_warnings(context: RunContext, run: Path) -> list[str]:
    warnings: list[str] = []
    calibrate_run(context, Trained.open(run), Callbacks(warn=warnings.append))
    return warnings


def test_one_after_a_shortened_training_follows_the_shorter_curve(tmp_path: Path) -> None:
    """Three epochs of three minutes do not leave two of ten for evaluation: two of them do."""
    spent = [0.0]

    def listen(event: Event) -> None:
        spent[0] += 90 * isinstance(event, Step)

    context = replace(setting_of("time_budget=10"), began=0.0, now=lambda: min(spent[0], 360.0))
    train_and_evaluate(context, tmp_path / "shortened", "test", Callbacks([listen]))
    decided = RunFolder(tmp_path / "shortened").read_json("clock.json")["decided"]
    assert decided["head after 1"] == 2
    extent = read_result(RunFolder(tmp_path / "shortened")).extent
    assert extent == Extent("full", 2, 3, 16, 10.0, cuts=["2 of 3 epochs"])
    assert str(extent) == "Stage full: 2 of 3 epochs, images of 16 px."
    short = train_and_evaluate(setting_of("epochs=2"), tmp_path / "short", "test")
    assert short.extent == Extent("full", 2, 2, 16)
    shortened, again = (
        RunFolder(tmp_path / name).read_tensors("refit/weights.safetensors")
        for name in ("shortened", "short")
    )
    assert all(torch.equal(shortened[name], again[name]) for name in again)


def test_one_without_a_plan_leaves_minutes_for_evaluation(tmp_path: Path) -> None:
    late = [0.0, 500.0]  # of ten minutes two are for evaluation

    def listen(event: Event) -> None:
        late[0] = late[1] if isinstance(event, Epoch) and event.epoch == 2 else late[0]

    context = replace(setting_of("time_budget=10"), began=0.0, now=lambda: late[0])
    train_and_evaluate(context, tmp_path, "test", Callbacks([listen]))
    assert RunFolder(tmp_path).read_json("clock.json")["decided"]["refit after 0"] is False
    assert calibration_warnings(context, tmp_path) == []
    extent = read_result(RunFolder(tmp_path)).extent
    assert extent == Extent("full", 3, 3, 16, 10.0, savings=["refit skipped"])


def slow_refit(spent: list[float]) -> Callbacks:
    """The clock stands still until the refit begins; each of its steps takes three minutes."""

    def listen(event: Event) -> None:
        spent[0] += 180 * (isinstance(event, Step) and began[0])
        began[0] |= isinstance(event, Refitted)

    began = [False]
    return Callbacks([listen])

"""Loggers show the event log's numbers, go on after a stop, and say what is not installed."""

from pathlib import Path
from typing import Any

import pytest

from unseen.config import schema as configs
from unseen.runs.prepare import Callbacks, prepare
from unseen.runs.run import train_and_evaluate
from unseen.training import loggers
from unseen.training.event_log import read
from unseen.training.events import Epoch, Event, Step

pytestmark = pytest.mark.usefixtures("narrow_network")
WORDS = [
    "data.max_classes=16",
    "data.size=16",
    "batch_size=16",
    "embedding_size=16",
    "epochs=1",
    "sampler.steps=4",
    "workers=0",
    'metrics=["recall@1"]',
]
STEP = Step(3, 0, {"total": 0.5, "loss": 0.25}, images_per_second=7.0)
EPOCH = Epoch(
    epoch=0,
    step=4,
    lr=0.1,
    seconds=1.0,
    images_per_second=7.0,
    train={"loss": 0.5, "recall@1": 0.9},
    validation={"recall@1": 0.8},
)


def test_the_numbers_of_events() -> None:
    assert loggers.numbers_of(STEP) == {"step/total": 0.5, "step/loss": 0.25}
    assert loggers.numbers_of(EPOCH) == {
        "lr": 0.1,
        "images_per_second": 7.0,
        "train/loss": 0.5,
        "train/recall@1": 0.9,
        "validation/recall@1": 0.8,
    }


def test_a_missing_package_stops_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    context = prepare(configs.make(configs.override({}, [*WORDS, 'loggers=["wandb"]'])))
    with pytest.raises(ValueError, match=r"wandb is not installed: .*\[tracking\]"):
        train_and_evaluate(context, tmp_path / "run", "test")
    assert not (tmp_path / "run").exists()


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loggers.0: Input should be 'tensorboard', 'wandb' or"):
        configs.make({"loggers": ["csv"]})


def test_tensorboard_has_every_step_once_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class StoppedError(Exception):
        pass

    def stop(event: Event) -> None:
        monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        if isinstance(event, Step) and event.step == 3:  # not yet in a checkpoint
            raise StoppedError

    context = prepare(configs.make(configs.override({}, [*WORDS, 'loggers=["tensorboard"]'])))
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path, "test", Callbacks([stop]))
    train_and_evaluate(context, tmp_path, "test")
    curves: Any = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    shown = [(e.step, pytest.approx(e.value, abs=1e-5)) for e in curves.Scalars("step/total")]
    steps = [e for e in read(tmp_path / "events.jsonl") if isinstance(e, Step)]
    assert [(e.step, e.terms["total"]) for e in steps] == shown
    assert [e.step for e in curves.Scalars("validation/recall@1")] == [4]


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "wandb_home"))
    for step in (0, 3):
        opened = loggers.Loggers(["wandb"], tmp_path, {"lr": 0.1}, step)
        opened(STEP)
        opened.close()
    known = loggers.remembered(tmp_path, "wandb")
    assert known is not None
    kept = list((tmp_path / "wandb").glob(f"offline-run-*-{known}/*.wandb"))
    assert len(kept) >= 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    # a folder is enough here; the data base of the default takes seconds to make
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'store'}")
    for step in (0, 3):
        opened = loggers.Loggers(["mlflow"], tmp_path, {"lr": 0.1}, step)
        opened(STEP)
        opened(EPOCH)
        opened.close()
    client = MlflowClient(tracking_uri=f"file:{tmp_path / 'store'}")
    experiment = client.get_experiment_by_name("unseen")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == loggers.remembered(tmp_path, "mlflow")
    assert run.data.metrics["validation/recall_at_1"] == 0.8
    assert run.data.params == {"lr": "0.1"}
    assert run.info.status == "FINISHED"

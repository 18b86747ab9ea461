"""Whole runs on a few characters: every loss trains, seeds decide, and a stopped run goes on as if
it had never stopped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.config import schema as configs
from unseen.core import registry
from unseen.core.contracts import IntArray
from unseen.evaluation.evaluate import evaluate
from unseen.runs.callbacks import Validation
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import train, train_and_evaluate
from unseen.training.event_log import read
from unseen.training.events import Epoch, Event, Step
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = [
    "data.max_classes=16",
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


@pytest.mark.parametrize("name", registry.names("losses"))
def test_every_loss_trains_two_steps(name: str, tmp_path: Path) -> None:
    result = train_and_evaluate(setting_of(f"loss={name}"), tmp_path, "test")
    assert 0 <= result.scores["trained"].metrics["recall@1"].value <= 1
    assert RunFolder(tmp_path).is_finished


@pytest.mark.parametrize("name", registry.names("miners"))
def test_every_miner_trains_two_steps(name: str, tmp_path: Path) -> None:
    words = ("loss=contrastive", f"miner={name}")
    assert train_and_evaluate(setting_of(*words), tmp_path, "test").seed == 0


@pytest.mark.parametrize("name", registry.names("samplers"))
def test_every_sampler_trains(name: str, tmp_path: Path) -> None:
    words = [word for word in TINY if "steps" not in word]
    words += ["data.max_classes=60", "batch_size=40", f"sampler={name}"]
    config = configs.make(configs.override({}, words))
    train_and_evaluate(prepare(config), tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


@pytest.mark.parametrize("name", sorted(set(registry.names("regularizers")) - {"head_divergence"}))
def test_every_regularizer_trains(name: str, tmp_path: Path) -> None:
    small = ", dimension=64, num_orders=3" if name == "horde" else ""
    words = ("loss=margin", f'regularizers=[{{name="{name}", weight=0.5{small}}}]')
    train_and_evaluate(setting_of(*words), tmp_path, "test")
    event_log = (tmp_path / "events.jsonl").read_text()
    assert f'"{name}"' in event_log


def test_a_loss_of_pytorch_metric_learning_trains(tmp_path: Path) -> None:
    words = ("loss=pml:CircleLoss", "miner=pml:MultiSimilarityMiner")
    train_and_evaluate(setting_of(*words), tmp_path, "test")
    words = ("loss=pml:ProxyAnchorLoss", "miner=none")
    train_and_evaluate(setting_of(*words), tmp_path / "proxies", "test")


def test_the_same_seed_gives_the_same_result_byte_for_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train_and_evaluate(setting_of("loss=margin"), tmp_path / name, "test")
    train_and_evaluate(setting_of("loss=margin", "seed=1"), tmp_path / "three", "test")
    one, two, three = (
        (tmp_path / name / "result.json").read_bytes() for name in ("one", "two", "three")
    )
    assert one == two
    assert one != three
    assert str(tmp_path).encode() not in one


@pytest.mark.parametrize(
    "words",
    [
        ("loss=margin",),
        ("loss=proxy_anchor",),
        ("sampler=greedy_coreset", "sampler.pool_size=64", "loss=contrastive"),
        ('regularizers=[{name="density", weight=1.0}]', "loss=triplet", "miner.switch=0.5"),
        ("manifold_mixup=true",),
        (
            *("loss=contrastive", "memory.size=24", "memory.start_step=2", "micro_batch=6"),
            *("miner=distance_weighted", "nested=[4,16]"),
        ),
        (
            "loss=proxy_anchor",
            "optimizer=sgd",
            "optimizer.backbone_factor=0.1",
            "optimizer.clip_norm=1.0",
            "schedule=step",
            "schedule.milestones=[1]",
            "schedule.warm_up=1",
            "ema=0.9",
            "patience=1",
            "precision=bf16",
        ),
        ("freeze_until=stage1", "cached_augmentations=2", "ema=0.9", "sampler=greedy_coreset"),
        (
            *("sampler=hard_neighbors", "sampler.search_every=2", "batch_size=12"),
            *("loss=arcface", "loss.sample_rate=0.6"),
        ),
        (
            *("label_noise=0.3", "label_filter=prism", "label_filter.window=3"),
            *("loss=sub_center_arcface", "loss.drop_after=3"),
        ),
    ],
    ids=[
        "margin",
        "proxies",
        "memory bank",
        "density",
        "mixup",
        "references",
        "habits",
        "frozen layers",
        "hard neighbours, drawn centres",
        "wrong labels",
    ],
)
@pytest.mark.parametrize(
    "stop", [pytest.param(1, marks=pytest.mark.slow), 5, pytest.param(7, marks=pytest.mark.slow)]
)
def test_stopped_and_resumed_equals_never_stopped(
    words: tuple[str, ...], stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a checkpoint after every step: what is taken up is then the middle of an epoch
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    steps = () if "sampler=" in " ".join(words) else ("sampler.steps=4",)
    # 3 of 8 classes are enough to select an epoch by
    context = setting_of(*words, "epochs=2", "validation_fraction=0.38", *steps)
    whole = train_and_evaluate(context, tmp_path / "whole", "test")
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path / "parts", "test", stop_at(stop))
    assert train_and_evaluate(context, tmp_path / "parts", "test") == whole
    assert whole.selection is not None
    assert whole.selection.classes == 3
    weights = [RunFolder(tmp_path / run).read_tensors("weights.safetensors") for run in RUNS]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    lines = [(tmp_path / run / "events.jsonl").read_text().count("\n") for run in RUNS]
    assert lines[0] == lines[1]


RUNS = ("whole", "parts")


def test_a_stopped_run_can_be_evaluated_and_still_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    context = setting_of("epochs=2", "sampler.steps=2")
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path, "test", stop_at(3))
    folder = RunFolder(tmp_path)
    evaluate_run(context, folder, read_selection(folder), "a look", Callbacks())
    assert not folder.is_finished
    train_and_evaluate(context, tmp_path, "test")
    assert folder.is_finished
    assert len(folder.read_json("manifest.json")["test_reads"]) == 2


def test_the_manifest_lists_the_one_reading_of_the_test_classes(tmp_path: Path) -> None:
    context = setting_of()
    train_and_evaluate(context, tmp_path, "unseen train glyphs")
    manifest = RunFolder(tmp_path).read_json("manifest.json")
    assert [read["purpose"] for read in manifest["test_reads"]] == ["final evaluation"]
    assert manifest["test_reads"][0]["config_hash"] == context.config.hash()
    assert manifest["finished"]
    assert "torch" in manifest["versions"]


def test_training_leaves_torch_as_it_found_it(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_and_evaluate(setting_of("threads=2"), tmp_path, "test")
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == 1


def test_selection_on_test_classes_is_written_down(tmp_path: Path) -> None:
    context = setting_of("select=test", "epochs=2")
    assert len(context.split.validation) == 0
    assert len(context.split.train) > len(setting_of().split.train)
    result = train_and_evaluate(context, tmp_path, "test")
    assert result.selection is not None
    assert result.selection.on == "test"
    reads = RunFolder(tmp_path).read_json("manifest.json")["test_reads"]
    purposes = [read["purpose"] for read in reads]
    assert purposes == [*(f"selection, epoch {i}" for i in range(3)), "final evaluation"]
    recall = result.scores["trained"].metrics["recall@1"].value
    assert result.selection.value == pytest.approx(recall, abs=1e-6)


def test_folds_select_on_their_own_classes_and_share_the_test(tmp_path: Path) -> None:
    folds = [setting_of("protocol=k_fold", "folds=3", f"fold={i}") for i in range(3)]
    validation = [set(fold.split.validation.tolist()) for fold in folds]
    assert not validation[0] & validation[1]
    assert all((fold.split.test == folds[0].split.test).all() for fold in folds)
    train_and_evaluate(folds[1], tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


def test_baselines_of_a_study_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def counted(*spaces: Any, **request: Any) -> Any:
        measured.append(1)
        return evaluate(*spaces, **request)

    monkeypatch.setattr("unseen.runs.evaluate_run.evaluate", counted)
    first = setting_of("loss=margin")
    words = ("loss=triplet",)
    second = replace(setting_of(*words), known_scores=first.known_scores)
    results = [
        train_and_evaluate(s, tmp_path / str(i), "test") for i, s in enumerate((first, second))
    ]
    assert len(measured) == 5  # two trained networks, one untrained one, its components, pixels
    assert results[1] == train_and_evaluate(setting_of(*words), tmp_path / "alone", "test")


def test_training_alone_does_not_read_the_test_classes(tmp_path: Path) -> None:
    selection = train(setting_of(), tmp_path, "test")
    folder = RunFolder(tmp_path)
    assert selection == read_selection(folder)
    assert folder.read_json("manifest.json")["test_reads"] == []
    assert not folder.file("result.json").exists()


def test_looks_may_be_rare_and_at_few_images_but_the_last_epoch_is_looked_at(
    tmp_path: Path,
) -> None:
    context = setting_of(
        "data.max_classes=24", "epochs=5", "validate_every=2", "validation_images=33"
    )
    train_and_evaluate(context, tmp_path / "run", "test")
    events = [e for e in read(tmp_path / "run/events.jsonl") if isinstance(e, Epoch)]
    assert [e.epoch + 1 for e in events if e.validation is not None] == [2, 4, 5]
    validation, labels = (
        Validation(context, RunFolder(tmp_path / "other")),
        context.dataset.labels,
    )
    for part, items in zip(("train", "validation"), validation.items.values(), strict=True):
        every = getattr(context.split, part)
        assert len(np.unique(labels[items])) == 2 < len(np.unique(labels[every]))
        assert np.array_equal(items, every[np.isin(labels[every], labels[items])])  # whole classes


def test_test_images_are_read_once_for_each_network_and_once_for_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = list[int](), RunContext.batches

    def counted(self: RunContext, transform: Any, items: IntArray) -> Any:
        read.append(np.array_equal(items, self.split.test))
        return real(self, transform, items)

    monkeypatch.setattr(RunContext, "batches", counted)
    train_and_evaluate(setting_of(), tmp_path, "test")
    assert sum(read) == 3  # untrained, trained, pixels

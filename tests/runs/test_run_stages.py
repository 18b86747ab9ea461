"""Stages is climbed while validation classes gain; stopped anywhere, it ends as if never stopped;
what was decided by the clock is decided once."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.config import schema as configs
from unseen.core.reason import Reason
from unseen.core.statistics import Interval
from unseen.reports import run_page, stored_run
from unseen.runs import run_stages
from unseen.runs.callbacks import Validation
from unseen.runs.prepare import Callbacks, RunContext, prepare, reopen, stored_config
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.runs.training_loop import TrainingLoop
from unseen.training.event_log import read
from unseen.training.events import (
    BudgetDecided,
    Epoch,
    Event,
    StageEnded,
    StageStarted,
    Step,
    StoppedEarly,
)
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import StageLog

pytestmark = pytest.mark.usefixtures("narrow_network")

LAST = '{name="last_layers", freeze_until="stage1", epochs=2, loss="proxy_anchor", miner="none"}'
WHOLE = (
    '{name="full", after="gain", freeze_until="none", epochs=2, loss="proxy_anchor", '
    'miner="none", image_size=24, training_sizes=[16, 24], validate_every=2, minutes=9.0, '
    "minutes_after=1.0}"
)
LARGER = '{name="bigger_backbone_head", after="no gain", image_size=24, mirror=true}'
WORDS = [
    *("data.max_classes=24", "data.size=16", "batch_size=16", "embedding_size=16", "epochs=2"),
    *("sampler.steps=2", "workers=0", 'metrics=["recall@1"]', "freeze_until=pooled", "ema=0.5"),
    f"stages=[{LAST}, {WHOLE}, {LARGER}]",
]


AnyEvent = TypeVar("AnyEvent")


class StoppedError(Exception):
    """A crash at a chosen event."""


@pytest.fixture(autouse=True)
def _all_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_all(monkeypatch, cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def keep_all(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """Every step has a checkpoint; every stage gains."""
    patch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    patch.setattr("unseen.runs.cached_activations.cache_folder", lambda: cache)
    gaining(patch, True)


@pytest.fixture(scope="module")
def context(cache: Path) -> RunContext:
    plan = [Reason("plan", "", "head 1, full 9 minutes")]
    return replace(context_of("time_budget=10"), now=Ticks(), began=0.0, plan=plan)


@pytest.fixture(scope="module")
def run(context: RunContext, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stages that was climbed without a stop; its clock stands still."""
    path = tmp_path_factory.mktemp("stages") / "run"
    with pytest.MonkeyPatch.context() as patch:
        keep_all(patch, cache)
        train_and_evaluate(context, path, "test")
    return path


def gaining(patch: pytest.MonkeyPatch, *gains: bool) -> None:
    """What the stages gain, in recall@1 and mAP@R, one after the other; the last holds for all
    others."""
    left = [gain for gain in gains for _ in range(2)]

    def gain(*_: Any) -> tuple[Interval, float]:
        value = 0.1 if (left.pop(0) if len(left) > 1 else left[0]) else -0.1
        return Interval(value, value - 0.1, value + 0.1), 0.05

    patch.setattr(run_stages, "gain_of", gain)
    patch.setattr(run_stages, "was_trained", lambda selection: True)


def context_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*WORDS, *words])))


def weights(path: Path) -> dict[str, Tensor]:
    return RunFolder(path).read_tensors("weights.safetensors")


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def message(path: Path) -> StageLog:
    selection = read_result(RunFolder(path)).selection
    assert selection is not None
    assert selection.stages is not None
    return selection.stages


def test_each_stage_starts_from_the_one_before_and_the_best_is_kept(run: Path) -> None:
    assert [stage.name for stage in message(run).stages] == ["head", "last_layers", "full"]
    assert message(run).selected == "full"
    assert same(weights(run), weights(run / "stages/full"))
    head = weights(run / "stages/head")
    frozen = ("backbone.body.stage0", "backbone.body.stage1")  # stay as they were
    for name, value in weights(run / "stages/last_layers").items():
        if name.startswith(frozen):
            assert torch.equal(value, head[name])
    events = [type(event) for event in read(run / "events.jsonl")]
    assert events[-4:] == [StageStarted, StageEnded] * 2
    reads = RunFolder(run).read_json("manifest.json")["test_reads"]
    assert [read["purpose"] for read in reads] == ["final evaluation"]


def test_a_run_is_used_with_the_config_of_its_kept_stage(run: Path) -> None:
    config = stored_config(RunFolder(run))
    assert (config.data.image_size, config.model.frozen.freeze_until, config.training.depth) == (
        24,
        None,
        "full",
    )
    assert reopen(run)[0].config == config
    trained = Trained.open(run)
    assert trained.embed([np.zeros((30, 30, 3), np.uint8)]).shape == (1, 16)


def test_the_report_shows_the_stages_and_the_curves_of_the_kept_one(
    run: Path, context: RunContext
) -> None:
    html = run_page.write(run, context.dataset).read_text()
    assert "the whole network" in html
    assert "16 → 24" in html
    assert "plan: head 1, full 9 minutes" in html
    kept = stored_run.read(run)
    assert kept.config["loss"] == "proxy_anchor"
    assert kept.steps == of_kind(Step, run / "stages/full")


def test_a_stage_that_leads_is_what_the_next_ones_start_from_if_they_have_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, False, False, True)
    proxies = '{name="proxies", loss="proxy_anchor", miner="none", leads=true}'
    other = LARGER.replace(', after="no gain"', "")
    whole = WHOLE.replace('after="gain", ', "")
    train_and_evaluate(context_of(f"stages=[{proxies}, {other}, {whole}]"), tmp_path, "test")
    starts = [event.start for event in of_kind(StageStarted, tmp_path)]
    assert starts == ["head", "head", "proxies"]
    assert [stage.over for stage in message(tmp_path).stages] == [None, "head", "head", "head"]
    assert [step.name for step in message(tmp_path).chain] == ["head", "proxies", "full"]


def test_where_depth_gains_nothing_the_head_gets_larger_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, False, True)
    train_and_evaluate(context_of("refit=true"), tmp_path, "test")
    assert [stage.name for stage in message(tmp_path).stages] == [
        "head",
        "last_layers",
        "bigger_backbone_head",
    ]
    assert [step.name for step in message(tmp_path).chain] == ["head", "bigger_backbone_head"]
    assert stored_config(RunFolder(tmp_path)).model.mirror is True
    assert same(weights(tmp_path), weights(tmp_path / "refit/stages/bigger_backbone_head"))
    assert same(weights(tmp_path / "selected"), weights(tmp_path / "stages/bigger_backbone_head"))


def test_a_head_on_trained_layers_is_evaluated_with_those_and_beside_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, True, False, True)
    context = context_of()
    result = train_and_evaluate(context, tmp_path / "run", "test")
    assert [step.name for step in message(tmp_path / "run").chain] == [
        "head",
        "last_layers",
        "bigger_backbone_head",
    ]
    trained, test = Trained.open(tmp_path / "run"), context.split.test
    network: Any = trained.network
    own = replace(context, config=trained.config).embed(network, trained.transform, test)
    kept = np.load(tmp_path / "run/embeddings/test.npz")["embeddings"]
    assert np.allclose(own.numpy(), kept, atol=1e-3)  # kept activations are rounded
    alone = [word for word in WORDS if not word.startswith("stages")]
    head = prepare(configs.make(configs.override({}, alone)))
    before = train_and_evaluate(head, tmp_path / "head", "test").scores["untrained"]
    assert result.scores["untrained"] == before


def test_a_stage_with_a_network_of_its_own_begins_anew_and_leaves_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, True, False)
    other = '{name="other", backbone="timm:test_resnet", image_size=24}'
    whole = WHOLE.replace('after="gain", ', "")
    context = context_of("refit=true", f"stages=[{other}, {whole}]")
    result = train_and_evaluate(context, tmp_path / "run", "test")
    assert [event.start for event in of_kind(StageStarted, tmp_path / "run")] == ["", "head"]
    assert [step.name for step in message(tmp_path / "run").chain] == ["other"]
    assert [stage.over for stage in message(tmp_path / "run").stages] == [None, "head", "other"]
    assert Trained.open(tmp_path / "run").config.model.backbone == "timm:test_resnet"
    assert same(weights(tmp_path / "run"), weights(tmp_path / "run/refit/stages/other"))
    alone = [word for word in WORDS if not word.startswith("stages")]
    words = [*alone, "backbone=timm:test_resnet", "image_size=24", "refit=true"]
    by_itself = prepare(configs.make(configs.override({}, words)))
    expected = train_and_evaluate(by_itself, tmp_path / "alone", "test")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "alone"))
    assert result.scores == expected.scores  # beside its own start, not that of the first stage


@pytest.mark.parametrize(
    ("keys", "words", "message"),
    [
        ('backbone="efficientnet_lite9"', (), "unknown backbone 'efficientnet_lite9'"),
        ('backbone="resnet50"', ("weights=x.pth",), "weights = x.pth are for another"),
        (
            'backbone="timm:test_resnet"',
            ("embedding_size=200", "head.start=principal"),
            "stage x: head.start = principal needs embedding_size <= 96",
        ),
    ],
)
def test_a_network_that_a_stage_cannot_have_is_refused_before_training(
    keys: str, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        context_of(f'stages=[{{name="x", {keys}}}]', *words)


@pytest.mark.slow
def test_where_no_stage_gains_the_head_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, False)
    train_and_evaluate(context_of(), tmp_path / "run", "test")
    alone = [word for word in WORDS if not word.startswith("stages")]
    train_and_evaluate(prepare(configs.make(configs.override({}, alone))), tmp_path / "one", "test")
    assert message(tmp_path / "run").selected == "head"
    assert same(weights(tmp_path / "run"), weights(tmp_path / "one"))
    scores = [RunFolder(tmp_path / n).read_json("result.json")["scores"] for n in ("run", "one")]
    assert scores[0] == scores[1]


def test_a_stage_that_will_not_reach_the_best_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, level = Validation._with_scores, 0.001

    def rising(self: Validation, loop: TrainingLoop, event: Any) -> Any:
        if self.context.config.training.validation.gain_by is None:
            return real(self, loop, event)
        scores = dict.fromkeys(("recall@1", "map_at_r"), level * (2 + loop.trainer.place.epoch))
        return replace(
            event, **{part: (getattr(event, part) or {}) | scores for part in self.items}
        )

    gaining(monkeypatch, False)
    monkeypatch.setattr(Validation, "_with_scores", rising)
    stage = '{name="all", freeze_until="none", epochs=4, gain_by=2}'
    for level, trained in ((0.001, 2), (1.0, 4)):
        path = tmp_path / str(level)
        train_and_evaluate(context_of(f"stages=[{stage}]"), path, "test")
        events = read(path / "stages/all/events.jsonl")
        assert [e.epoch for e in events if isinstance(e, Epoch)] == list(range(trained))
        message_why = [e for e in events if isinstance(e, StoppedEarly)]
        assert message_why == ([StoppedEarly(2, 1, short=True)] if trained == 2 else [])


def stop_at(kind: type[Event], number: int) -> Callbacks:
    seen: list[Event] = []

    def listen(event: Event) -> None:
        seen.extend([event] if isinstance(event, kind) else [])
        if len(seen) == number:
            raise StoppedError

    return Callbacks([listen])


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (Step, 7),
        pytest.param(Step, 3, marks=pytest.mark.slow),
        pytest.param(StageStarted, 1, marks=pytest.mark.slow),
        pytest.param(StageEnded, 1, marks=pytest.mark.slow),
        pytest.param(Step, 11, marks=pytest.mark.slow),
    ],
)
def test_stopped_anywhere_and_resumed_equals_never_stopped(
    run: Path, context: RunContext, tmp_path: Path, kind: type[Event], number: int
) -> None:
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path, "test", stop_at(kind, number))
    train_and_evaluate(context, tmp_path, "test")
    assert same(weights(run), weights(tmp_path))
    results = [RunFolder(path).read_json("result.json") for path in (run, tmp_path)]
    assert results[0] == results[1]
    for message_of in (StageStarted, StageEnded):
        assert of_kind(message_of, run) == of_kind(message_of, tmp_path)


def of_kind(kind: type[AnyEvent], run: Path) -> list[AnyEvent]:
    return [event for event in read(run / "events.jsonl") if isinstance(event, kind)]


class Ticks:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def slowly(ticks: Ticks, each: float) -> Callbacks:
    """Every step takes so many seconds."""

    def listen(event: Event) -> None:
        ticks.seconds += each * isinstance(event, Step)

    return Callbacks([listen])


def test_a_stage_without_minutes_left_is_not_begun_and_that_is_reported_once(
    tmp_path: Path,
) -> None:
    ticks = Ticks()
    context = replace(context_of("time_budget=10"), now=ticks, began=0.0)
    train_and_evaluate(context, tmp_path, "test", slowly(ticks, 60.0))  # head 4 minutes, last 4
    assert [stage.name for stage in message(tmp_path).stages] == ["head", "last_layers"]
    time_budget = of_kind(BudgetDecided, tmp_path)
    assert time_budget == [BudgetDecided("full", 0)]
    decided = RunFolder(tmp_path).read_json("clock.json")["decided"]
    assert [what for what, chosen in decided.items() if chosen is False] == ["full after 0"]


def test_a_head_is_begun_only_with_all_its_minutes_because_it_cannot_be_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaining(monkeypatch, False)
    larger = LARGER.replace("}", ", minutes=3.0, minutes_after=0.5}")
    ticks = Ticks()
    context = context_of("time_budget=10", f"stages=[{LAST}, {larger}]")
    context = replace(context, now=ticks, began=0.0)
    train_and_evaluate(context, tmp_path, "test", slowly(ticks, 60.0))  # head 4 minutes, last 4
    assert [stage.name for stage in message(tmp_path).stages] == ["head", "last_layers"]
    assert of_kind(BudgetDecided, tmp_path) == [BudgetDecided("bigger_backbone_head", 0)]


def test_a_training_that_would_end_late_gets_fewer_epochs_once_and_for_all(tmp_path: Path) -> None:
    """Its epochs take 6 minutes, and 7 are left for 6 of them; the resumed run is fast
    again and yet reads the decision back."""
    words = ("time_budget=20", f"stages=[{WHOLE.replace('epochs=2', 'epochs=6')}]")
    ticks = Ticks()
    context = replace(context_of(*words), now=ticks, began=0.0)
    callbacks = slowly(ticks, 180.0)  # head 12 minutes; 7 left for epochs of 6
    train_and_evaluate(context, tmp_path / "whole", "test", callbacks)
    time_budget = of_kind(BudgetDecided, tmp_path / "whole")
    assert [(e.training, e.done) for e in time_budget] == [("full", 1)]
    epochs = of_kind(Epoch, tmp_path / "whole/stages/full")
    assert len(epochs) == time_budget[0].epochs == 1
    assert epochs[-1].validation is not None  # the last one is looked at, whenever it ends

    ticks.seconds = 0.0
    stopping = slowly(ticks, 180.0)
    stopping.listeners += stop_at(BudgetDecided, 1).listeners
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path / "stopped", "test", stopping)
    ticks.seconds = 0.0
    train_and_evaluate(context, tmp_path / "stopped", "test", slowly(ticks, 0.1))
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    assert of_kind(BudgetDecided, tmp_path / "stopped") == time_budget


def test_stages_without_a_plan_leave_a_fraction_of_the_minutes_for_evaluation(
    tmp_path: Path,
) -> None:
    """A head of two minutes, then epochs of one: of ten minutes two are left."""
    ticks = Ticks()
    words = ("time_budget=10", f"stages=[{LAST.replace('epochs=2', 'epochs=8')}]")
    context = replace(context_of(*words), now=ticks, began=0.0)
    train_and_evaluate(context, tmp_path, "test", slowly(ticks, 30.0))
    assert of_kind(BudgetDecided, tmp_path) == [BudgetDecided("last_layers", 6, done=1)]
    assert ticks.seconds == 480


def test_what_is_spent_is_known_after_a_kill_between_decisions(tmp_path: Path) -> None:
    ticks = Ticks()
    context = replace(context_of("time_budget=10"), now=ticks, began=0.0)
    callbacks = slowly(ticks, 40.0)
    callbacks.listeners += stop_at(Step, 2).listeners
    with pytest.raises(StoppedError):
        train_and_evaluate(context, tmp_path, "test", callbacks)
    assert RunFolder(tmp_path).read_json("clock.json")["spent"] == 40.0


def test_a_network_is_trained_gently_below_its_kept_head_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network of its own, from its proxies, which gain nothing; and not without the head."""
    other = 'backbone="timm:test_resnet", image_size=24'
    anchors = 'after="bigger_backbone_head", loss="proxy_anchor", miner="none"'
    stages = [
        f'{{name="bigger_backbone_head", {other}}}',
        f'{{name="bigger_backbone_proxies", leads=true, {other}, {anchors}}}',
        f'{{name="full_low_lr", {other}, {anchors}, freeze_until="none", select_by="map_at_r"}}',
    ]
    words = ("refit=true", f"stages=[{', '.join(stages)}]")
    names = ["head", "bigger_backbone_head", "bigger_backbone_proxies", "full_low_lr"]
    gaining(monkeypatch, True, False, True)
    train_and_evaluate(context_of(*words), tmp_path / "kept", "test")
    assert [stage.name for stage in message(tmp_path / "kept").stages] == names
    assert [step.name for step in message(tmp_path / "kept").chain] == names[1:]
    begun = of_kind(StageStarted, tmp_path / "kept")
    assert [event.start for event in begun] == [
        "",
        "bigger_backbone_head",
        "bigger_backbone_proxies",
    ]
    assert same(weights(tmp_path / "kept"), weights(tmp_path / "kept/refit/stages/full_low_lr"))
    gaining(monkeypatch, False)
    train_and_evaluate(context_of(*words[1:]), tmp_path / "not", "test")
    assert [stage.name for stage in message(tmp_path / "not").stages] == names[:2]


def test_a_stage_cannot_wait_for_one_that_does_not_come_before_it() -> None:
    stages = '{name="first", after="second"}, {name="second", epochs=2}'
    with pytest.raises(ValueError, match="unknown after of the stage first 'second'"):
        context_of(f"stages=[{stages}]")


@pytest.mark.slow
def test_two_processes_climb_as_one(tmp_path: Path) -> None:
    """The stages of both, and the weights but for the order of sums."""
    for cpu_processes in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "unseen",
            "train",
            "glyphs",
            *WORDS,
            f"cpu_processes={cpu_processes}",
        ]
        where = ["--out", str(tmp_path / cpu_processes)]
        cache = os.environ | {"UNSEEN_CACHE": str(tmp_path / "cache")}
        words = ["time_budget=60", "refit=true", "threads=1"]
        subprocess.run([*command, *words, *where], env=cache, check=True, stdout=subprocess.DEVNULL)
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    assert all(torch.allclose(one[name], two[name], atol=1e-3) for name in one)
    names = [
        [stage.name for stage in message(tmp_path / cpu_processes).stages] for cpu_processes in "12"
    ]
    assert names[0] == names[1]

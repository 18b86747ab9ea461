"""A plan fits its minutes, whatever the machine; it is made once and becomes part of the config."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.config import schema as configs
from unseen.config.stages import stage_config
from unseen.runs.claim_folder import as_stored, changed_keys
from unseen.runs.prepare import Callbacks, RunContext, prepare
from unseen.runs.run import begin
from unseen.runs.speed import Line, Speeds, measured, speeds_of
from unseen.runs.time_budget import planned
from unseen.runs.time_plan import EPOCHS, MOST, Plan, Work, plan
from unseen.runs.time_spent import ENOUGH
from unseen.training.run_folder import RunFolder

TWO_CORES = Speeds(
    embed=Line.through(96, 1 / 300, 224, 1 / 110),
    train=Line.through(128, 1 / 70, 176, 1 / 39),
    rest=Line.through(96, 1 / 500, 224, 1 / 150),
)
CARS = Work(minutes=60, train=6840, validation=1214, test=8122, own=224)
BIRDS = Work(minutes=60, train=4980, validation=884, test=5924, own=224)


def times(speeds: Speeds, factor: float) -> Speeds:
    lines = (speeds.embed, speeds.train, speeds.rest)
    return Speeds(*(Line(factor * line.fixed, factor * line.per_area) for line in lines))


@pytest.mark.parametrize("work", [CARS, BIRDS], ids=["cars", "birds"])
@pytest.mark.parametrize("minutes", [5, 10, 20, 30, 60, 240])
@pytest.mark.parametrize("factor", [0.1, 1.0])
def test_a_plan_fits_its_minutes(work: Work, minutes: float, factor: float) -> None:
    result = plan(replace(work, minutes=minutes), times(TWO_CORES, factor))
    assert result.minutes <= minutes
    for values in result.stages.values():
        assert values["minutes"] + values["minutes_after"] <= minutes


@pytest.mark.parametrize("work", [CARS, BIRDS], ids=["cars", "birds"])
@pytest.mark.parametrize("minutes", [20, 30, 60])
def test_a_larger_head_fits_into_what_a_whole_network_that_gives_up_leaves(
    work: Work, minutes: float
) -> None:
    result = plan(replace(work, minutes=minutes), TWO_CORES)
    whole, larger, steps = (
        result.stages["full"],
        result.stages["bigger_backbone_head"],
        result.steps,
    )
    spent = (
        steps["head"]
        + steps.get("last_layers", 0)
        + steps["full"] * (whole["gain_by"] / whole["epochs"])
    )
    each = TWO_CORES.embed.at
    sizes = [larger["image_size"], larger["image_size"], result.size, 32]
    evaluation = work.test * sum(map(each, sizes)) / 60
    embedding = 2 * (work.train + work.validation) * each(larger["image_size"]) / 60
    assert larger["minutes"] >= embedding
    assert larger["minutes_after"] >= evaluation
    assert spent + larger["minutes"] + larger["minutes_after"] <= result.minutes <= minutes


def test_a_larger_head_is_tried_beside_a_whole_network_whose_images_stay_large() -> None:
    speeds = replace(TWO_CORES, bigger=Line.through(130, 1 / 200, 260, 1 / 54))
    network = ("efficientnet_lite2", 260)
    birds = plan(replace(BIRDS, bigger=network), speeds)
    whole, larger = birds.stages["full"], birds.stages["bigger_backbone_head"]
    assert (larger["after"], larger["image_size"]) == ("any", 384)  # 1.5 times its own, in 16s
    assert larger["backbone"] == "efficientnet_lite2"
    assert whole["training_sizes"][-1] >= 0.7 * 224
    both = sum(birds.steps.values())
    assert both == pytest.approx(birds.minutes, abs=0.3)  # as long as it takes to do all of it
    embedding = 2 * (BIRDS.train + BIRDS.validation) * Line.at(speeds.bigger, 384) / 60
    assert embedding <= larger["minutes"] <= 0.2 * BIRDS.minutes
    assert whole["minutes_after"] >= larger["minutes"] + larger["minutes_after"] - 0.2
    less = [plan(replace(CARS, bigger=network, minutes=m), speeds).stages for m in (16, 35)]
    assert all(stages["full"]["training_sizes"][-1] <= 160 for stages in less)
    assert [stages["bigger_backbone_head"]["after"] for stages in less] == ["no gain"] * 2
    assert ["backbone" in stages["bigger_backbone_head"] for stages in less] == [False, True]


def test_a_gentle_network_has_the_minutes_that_a_whole_one_gives_back() -> None:
    speeds = replace(TWO_CORES, bigger=Line.through(130, 1 / 200, 260, 1 / 54))
    birds = replace(BIRDS, bigger=("efficientnet_lite2", 260), minutes=100)
    result = plan(birds, speeds)
    whole, steps = result.stages["full"], dict(result.steps)
    gentle = steps.pop("full_low_lr")
    given_back = steps["full"] * (1 - whole["gain_by"] / whole["epochs"])
    twice = 2 * birds.test * Line.at(speeds.bigger, 384) / 60  # by the head's start, and trained
    all_steps = sum(steps.values())  # evaluation is the longest, of gentle
    ways = [all_steps - twice, all_steps - given_back + gentle]
    assert max(ways) == pytest.approx(result.minutes, abs=0.3)
    (size,), epochs = (
        result.stages["full_low_lr"]["training_sizes"],
        result.stages["full_low_lr"]["epochs"],
    )
    assert 0.6 * 384 <= size <= 0.75 * 384
    assert speeds.bigger is not None
    slower = speeds.bigger.per_area / speeds.embed.per_area
    each = speeds.train.fixed + slower * speeds.train.per_area * size**2
    assert result.stages["full_low_lr"]["minutes"] >= epochs * birds.train * each / 60 - 0.1
    after = result.stages["bigger_backbone_head"]["minutes_after"] + twice
    assert result.stages["full_low_lr"]["minutes_after"] == pytest.approx(after, abs=0.2)
    assert "full_low_lr" not in plan(replace(birds, minutes=60), speeds).stages
    assert "full_low_lr" not in plan(replace(birds, fixed_size=224), speeds).stages


def test_a_larger_head_has_smaller_images_where_its_network_can_then_be_trained() -> None:
    speeds = replace(TWO_CORES, bigger=Line.through(130, 1 / 200, 260, 1 / 54))
    birds = replace(BIRDS, bigger=("efficientnet_lite2", 260))
    sizes = {}
    for minutes in range(50, 110, 5):
        stages = plan(replace(birds, minutes=minutes), speeds).stages
        trained = stages["full_low_lr"]["training_sizes"][0] if "full_low_lr" in stages else None
        sizes[minutes] = (stages["bigger_backbone_head"]["image_size"], trained)
    assert {sizes[m] for m in (50, 60)} == {(384, None)}  # no time for it at any size
    assert sizes[105] == (384, 288)
    between = [(head, size) for head, size in sizes.values() if size is not None and head < 384]
    assert between == sorted(between)
    assert len(between) >= 2
    assert all(size >= 0.9 * 260 and size == int(0.75 * head) // 16 * 16 for head, size in between)


def test_a_gentle_network_follows_a_kept_larger_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unseen.config.resolve.has_weights", lambda name: name[:-1] == "efficientnet_lite"
    )
    speeds = times(TWO_CORES, 0.01)

    def measure(context: RunContext, other: str | None) -> Speeds:
        return replace(speeds, bigger=speeds.embed)

    config = planned(context_of("time_budget=60"), measure).config
    stages = {stage.name: stage for stage in config.training.stages}
    assert list(stages)[-4:] == [
        "full",
        "bigger_backbone_head",
        "bigger_backbone_proxies",
        "full_low_lr",
    ]
    assert (
        stages["bigger_backbone_proxies"].after
        == stages["full_low_lr"].after
        == "bigger_backbone_head"
    )
    head, before, gentle = (stage_config(config, name) for name in list(stages)[-3:])
    assert (
        head.model.backbone
        == before.model.backbone
        == gentle.model.backbone
        == "efficientnet_lite2"
    )
    assert head.data.image_size == before.data.image_size == gentle.data.image_size
    assert (before.training.depth, gentle.training.depth) == ("head", "full")
    assert before.loss.name == gentle.loss.name == "proxy_anchor"
    assert gentle.optimizer.lr == stage_config(config, "full").optimizer.lr / 4
    assert before.training.validation.select_by == "last", "proxies that were trained"
    assert (gentle.training.validation.select_by, gentle.model.mirror) == ("map_at_r", "evaluation")


@pytest.mark.parametrize(
    ("words", "larger"),
    [
        ((), "efficientnet_lite2"),
        (("backbone=efficientnet_lite0",), None),
        (("backbone=efficientnet_lite2",), None),
    ],
)
def test_who_names_no_network_gets_a_head_on_a_larger_one(
    words: tuple[str, ...], larger: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "unseen.config.resolve.has_weights", lambda name: name[:-1] == "efficientnet_lite"
    )
    request = list[str | None]()

    def measure(context: RunContext, other: str | None) -> Speeds:
        request.append(other)
        return replace(TWO_CORES, bigger=other and TWO_CORES.embed)

    config = planned(context_of("time_budget=20", *words), measure).config
    assert request == [larger]
    stage = stage_config(config, "bigger_backbone_head")
    assert stage.model.backbone == (larger or config.model.backbone)
    assert stage.training.depth == "head"


def test_many_test_images_leave_a_head_that_fits() -> None:
    many = replace(BIRDS, train=2000, validation=300, test=150_000)
    result = plan(many, TWO_CORES)
    assert result.stages == {}
    assert result.minutes <= many.minutes


def sizes_of(result: Plan) -> list[int]:
    sizes: list[int] = result.stages["full"]["training_sizes"]
    return sizes


def test_more_minutes_train_deeper_on_larger_images() -> None:
    plans = [plan(replace(CARS, minutes=m), TWO_CORES) for m in (5, 20, 60, 600)]
    assert [list(p.stages) for p in plans][:2] == [[], ["full", "bigger_backbone_head"]]
    assert list(plans[3].stages)[:2] == ["last_layers", "full"]
    assert sizes_of(plans[1])[-1] < sizes_of(plans[2])[-1] <= sizes_of(plans[3])[-1] == 224
    assert plans[3].stages["full"]["epochs"] == MOST
    for result in plans[1:]:
        whole, sizes = result.stages["full"], sizes_of(result)
        assert sizes == sorted(sizes)  # small first
        assert sizes[-1] <= whole["image_size"] <= 224
        assert whole["epochs"] >= EPOCHS
        assert whole["epochs"] // whole["validate_every"] <= 5


def test_a_size_and_a_depth_that_are_given_hold() -> None:
    given = plan(replace(CARS, fixed_size=128), TWO_CORES)
    assert (given.size, sizes_of(given), given.stages["full"]["image_size"]) == (128, [128], 128)
    assert "bigger_backbone_head" not in given.stages
    assert plan(replace(CARS, depth="head"), TWO_CORES).stages == {}
    assert set(plan(replace(CARS, depth="last_layers"), TWO_CORES).stages) == {
        "last_layers",
        "bigger_backbone_head",
    }


def test_a_head_alone_gets_the_largest_images_that_fit() -> None:
    quick = plan(replace(BIRDS, minutes=4, depth="head"), TWO_CORES)
    slow = plan(replace(BIRDS, minutes=30, depth="head"), TWO_CORES)
    assert quick.size < slow.size == 336
    assert (quick.mirror, slow.mirror) == (False, True)


def test_bf16_is_taken_where_it_is_faster() -> None:
    assert "precision" not in plan(CARS, TWO_CORES).stages["full"]
    assert plan(CARS, replace(TWO_CORES, bf16=True)).stages["full"]["precision"] == "bf16"


class Photographs:
    """32 classes of 40 images too large to be small."""

    name = "photographs"
    labels = np.repeat(np.arange(32), 40)
    label_names = tuple(f"class {c}" for c in range(32))
    official_test_classes = None

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (80, 70), (7 * int(self.labels[index]), index % 256, 0))

    def describe(self) -> dict[str, Any]:
        return {"items": len(self), "classes": 32}

    def fingerprint(self) -> str:
        return "photographs"


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unseen.config.resolve.has_weights", lambda name: name == "efficientnet_lite0"
    )


def context_of(*words: str) -> RunContext:
    data: Any = Photographs()
    config = configs.make(configs.override({"threads": 1, "workers": 0}, list(words)))
    return prepare(config, dataset=data)


def message(words: tuple[str, ...]) -> RunContext:
    return planned(context_of(*words), lambda context, larger: TWO_CORES)


@pytest.mark.usefixtures("_installed")
def test_photographs_have_a_budget_that_is_said_and_stored() -> None:
    context = message(())
    assert context.config.training.time_budget == 20
    assert any(str(line).startswith("time_budget = 20: unless given") for line in context.reasons)
    assert any(str(line).startswith("plan: head ") for line in context.plan)
    stages = context.config.training.stages
    names = [
        "proxies",
        "last_layers",
        "full",
        "bigger_backbone_head",
        "bigger_backbone_proxies",
        "full_low_lr",
    ]
    assert [stage.name for stage in stages] == names
    assert {stage.after for stage in stages[:4]} == {"any"}  # so few have time for all
    assert {stage.after for stage in stages[4:]} == {"bigger_backbone_head"}
    stored = configs.make_resolved(configs.parse(context.config.to_toml()))
    assert stored == context.config
    depths = [stage_config(stored, stage.name).training.depth for stage in stored.training.stages]
    assert depths == ["head", "last_layers", "full", "head", "head", "full"]


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(("depth", "come_all"), [("auto", False), ("head", True)])
def test_a_plan_says_where_some_steps_come_instead_of_others(depth: str, come_all: bool) -> None:
    plan = message((f"depth={depth}", "time_budget=20")).plan
    (line,) = (reason.why for reason in plan if "at most" in reason.why)
    total = sum(float(step) for step in re.findall(r"[a-z] ([\d.]+)", line.split(" minutes")[0]))
    (longest,) = re.findall(r"([\d.]+) of 20 at most", line)
    assert (total < float(longest) + 0.5) == come_all
    assert ("; not all of them come, " not in line) == come_all


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("words", [("time_budget=none",), ("epochs=3",), ("freeze_until=pooled",)])
def test_who_says_how_deep_or_how_long_gets_no_plan(words: tuple[str, ...]) -> None:
    context = context_of(*words)
    assert planned(context, lambda context, larger: TWO_CORES) is context


@pytest.mark.usefixtures("_installed")
def test_too_little_data_for_depth_gets_a_head_and_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unseen.runs.time_budget.IMAGES", 10_000)
    context = message(("time_budget=3",))
    assert not context.plan
    assert context.config == context_of("time_budget=3").config
    (reason,) = [reason for reason in context.reasons if reason.key == "depth"]
    assert reason.value == "head"
    assert "training images do not say whether more pays" in reason.why


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("words", [(), ("depth=full",)])
def test_a_depth_that_there_is_no_time_for_is_said_with_the_minutes_it_takes(
    words: tuple[str, ...],
) -> None:
    def plan_of(minutes: str) -> RunContext:
        slow = times(TWO_CORES, 20)
        return planned(context_of(f"time_budget={minutes}", *words), lambda context, larger: slow)

    reasons = {reason.key: reason for reason in plan_of("3").plan}
    assert reasons["depth"].why == "no time for the whole network"
    enough = reasons[ENOUGH].value
    assert not any(stage.name == "full" for stage in plan_of("3").config.training.stages)
    assert any(stage.name == "full" for stage in plan_of(str(enough)).config.training.stages)


@pytest.mark.usefixtures("_installed")
def test_given_keys_hold_on_every_stage_and_a_given_depth_is_climbed_to() -> None:
    config = message(
        ("time_budget=30", "loss=margin", "lr=2e-4", "depth=full", "refit=false")
    ).config
    assert all(
        stage.minutes for stage in config.training.stages
    )  # the run's own minutes are another key
    stages = [stage_config(config, stage.name) for stage in config.training.stages]
    assert {stage.loss.name for stage in stages} == {"margin"}
    assert {stage.optimizer.lr for stage in stages} == {2e-4}
    assert not config.training.validation.refit


@pytest.mark.usefixtures("_installed")
def test_a_run_goes_on_with_the_plan_it_began_with(tmp_path: Path) -> None:
    first, folder = message(()), RunFolder(tmp_path)
    begin(first, folder, "test")
    slower = planned(context_of(), lambda context, larger: times(TWO_CORES, 5))
    assert slower.config.training.stages != first.config.training.stages
    again = as_stored(slower, folder)
    assert again.config == first.config
    assert again.plan == first.plan
    of_plan = [reason for reason in again.reasons if reason.key in ("speed", "plan", "stages")]
    assert of_plan == [reason for reason in first.plan if reason.key in ("speed", "plan")]
    words = ("time_budget=20", "depth=full")
    began, folder_of_whole = message(words), RunFolder(tmp_path / "whole")
    begin(began, folder_of_whole, "test")
    busy = planned(context_of(*words), lambda context, larger: times(TWO_CORES, 50))
    assert busy.config.training.depth != "full", "there would be no time for it today"
    assert as_stored(busy, folder_of_whole).config == began.config
    folder_of_head = RunFolder(tmp_path / "head")
    begin(busy, folder_of_head, "test")
    assert as_stored(began, folder_of_head).config == busy.config
    less = message(("time_budget=20", "depth=last_layers"))
    assert "depth" in changed_keys(folder_of_head, as_stored(less, folder_of_head).config)
    longer = planned(context_of("time_budget=40"), lambda context, larger: TWO_CORES)
    assert "time_budget" in changed_keys(folder, as_stored(longer, folder).config)


SMALL = ["data.max_classes=40", "data.size=16", "workers=0", "threads=1", "embedding_size=8"]


class Counting:
    """A clock that is one second later whenever it is asked."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> float:
        self.seconds += 1
        return float(self.seconds)


def test_seconds_a_image_are_fixed_and_by_area() -> None:
    line = Line.through(100, 0.02, 200, 0.05)
    assert (line.at(100), line.at(200)) == pytest.approx((0.02, 0.05))
    assert line.at(300) == pytest.approx(0.02 + 0.03 * 8 / 3)
    assert Line.through(100, 0.02, 200, 0.01).per_area == 0  # noise


@pytest.mark.usefixtures("narrow_network")
def test_a_machine_is_measured_with_the_runs_own_images_and_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = prepare(configs.make(configs.override({}, SMALL)))
    monkeypatch.setattr("unseen.runs.speed.cache_folder", lambda: tmp_path)
    result = speeds_of(context, now=Counting())
    busy = 1 / 0.85  # of one thread
    assert result.embed.at(32) == pytest.approx(busy / 64)  # a second for 64 images
    assert [line.at(32) for line in (result.train, result.rest)] == pytest.approx([busy / 128] * 2)
    monkeypatch.setattr("unseen.runs.speed.measured", None)
    assert speeds_of(context) == result


@pytest.mark.usefixtures("narrow_network")
@pytest.mark.parametrize("has_bf16", [False, True])
def test_measuring_is_announced_and_every_step_of_it_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_bf16: bool
) -> None:
    heard: list[object] = []

    def progress(what: str, done: int, total: int) -> None:
        assert what == "measuring the speed of this machine"
        heard.append((done, total))

    def now() -> float:
        heard.append("clock")
        return float(len(heard))

    context = prepare(configs.make(configs.override({}, SMALL)))
    monkeypatch.setattr("unseen.runs.speed.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("unseen.runs.speed._may_be_faster", lambda *_: has_bf16)
    callbacks = Callbacks([heard.append], progress)
    speeds_of(context, now=now, callbacks=callbacks)
    assert str(heard[0]).startswith("Note(text='measuring the speed of this machine")
    assert isinstance(heard[1], tuple), "the bar stands before anything is measured"
    assert heard[1][0] == 0
    steps = [each for each in heard if isinstance(each, tuple)]
    done = [step for step, _ in steps]
    assert done[:-1] == list(range(len(done) - 1)), "one by one"
    assert steps[-1][0] == steps[-1][1] == done[-2]
    assert len(done) > 30
    heard.clear()
    speeds_of(context, callbacks=callbacks)
    assert heard == [], "kept from before: nothing to wait for"


@pytest.mark.usefixtures("narrow_network")
def test_bf16_is_measured_where_the_processor_has_it_and_a_pass_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def speeds(
        *words: str, has: bool = True, half: float = 0.5, step: float | None = None
    ) -> Speeds:
        """half: what a pass in bf16 takes of the time of float32; step: likewise of training."""
        time_budget = Counting()

        def now() -> float:
            return time_budget() * (half if torch.is_autocast_enabled("cpu") else 1.0)

        def trained(context: RunContext, _: object) -> float:
            return 0.02 * ((step or half) if context.config.training.precision == "bf16" else 1.0)

        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "amx_bf16": has})
        monkeypatch.setattr("unseen.runs.speed._training", trained)
        return measured(prepare(configs.make(configs.override({}, [*SMALL, *words]))), None, now)

    plain, half = Line(0.02, 0.0), Line(0.01, 0.0)
    assert speeds() == replace(speeds(has=False), train=half, rest=half, bf16=True)
    slower = (speeds(has=False), speeds(half=0.9), speeds(step=0.9), speeds("precision=float32"))
    for other in slower:
        assert (other.bf16, other.train, other.rest) == (False, plain, plain)


@pytest.mark.usefixtures("narrow_network")
def test_speeds_with_and_without_a_given_precision_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = iter([replace(TWO_CORES, bf16=True), TWO_CORES])
    monkeypatch.setattr("unseen.runs.speed.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("unseen.runs.speed.measured", lambda *_: next(made))
    result = [
        speeds_of(prepare(configs.make(configs.override({}, [*SMALL, *words]))))
        for words in ([], ["precision=float32"], [])
    ]
    assert [speeds.bf16 for speeds in result] == [True, False, True]

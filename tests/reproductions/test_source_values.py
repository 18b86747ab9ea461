"""What differs from a source is read off the runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from unseen.config import schema as configs
from unseen.reproductions import source_values
from unseen.reproductions.differences import differences, run_configs
from unseen.reproductions.request import PUBLISHED
from unseen.reproductions.source_values import (
    JACOB,
    LI,
    PSOMAS,
    ROTH,
    VO_HAYS,
    Each,
    Source,
    resolved,
)
from unseen.studies import study_file as plans
from unseen.studies.results import Results, Run
from unseen.studies.study_file import PlannedRun, Values
from unseen.studies.what_was_trained import resolved_configs, trained
from unseen.training.run_folder import RunFolder

ALIKE: Values = {
    "backbone": "resnet50", "weights": "imagenet", "freeze_until": None, "frozen_bn": "stats",
    "image_size": 224, "embedding_size": 128, "optimizer": {"name": "adam"}, "lr": 1e-5,
    "weight_decay": 4e-4, "schedule": {"name": "constant"}, "batch_size": 112, "select": "test",
    "sampler": {"name": "m_per_class", "preset": "revisit"}, "epochs": 150,
    "transform": "revisit", "head": {"start": "default"},
    "loss": {"name": "margin", "preset": "revisit"},
    "miner": {"name": "distance_weighted", "preset": "revisit"},
}  # fmt: skip


def results(out: Path, *given: Values) -> Results:
    """A study with a finished run of each config."""
    plan = plans.make({"name": "s", "seeds": [0], "factors": {"loss": ["margin"]}})
    runs = []
    for number, values in enumerate(given):
        folder = RunFolder(out / str(number))
        folder.write_text("config.toml", configs.make(values).to_toml())
        runs.append(Run(PlannedRun("final", {"loss": "margin"}, {"seed": 0}), folder.path, "done"))
    return Results(plan, out, tuple(runs), ())


def message(source: Source, data: str, out: Path, *given: Values) -> list[str]:
    return differences(source, data, run_configs([results(out, *given)]))


def test_a_run_as_the_source_made_it_differs_in_nothing(tmp_path: Path) -> None:
    assert message(ROTH, "cub200", tmp_path, ALIKE) == []
    assert message(ROTH, "online_products", tmp_path, ALIKE) == [
        "epochs: 150 in 1 of 1 runs; the source has 100."
    ]


PLANTED = {  # a difference of each kind of setting, and what is said of it
    "lr": ({"lr": 1e-3}, "lr: 0.001"),
    "sampler": ({"sampler": {"name": "m_per_class"}}, "sampler: 4 of a class"),
    "freeze_until": ({"freeze_until": "pooled"}, "freeze_until: pooled"),
    "epochs": ({"epochs": 8}, "epochs: 8"),
    "frozen_bn": ({"frozen_bn": "full"}, "frozen_bn: full"),
    "image_size": ({"image_size": 227}, "image_size: 227"),
    "transform": ({"transform": "red"}, "transform: red"),
    "head": ({"head": {"start": "principal"}}, "head: start principal"),
    "optimizer": ({"optimizer": {"name": "adamw"}}, "optimizer: adamw"),
    "select": ({"select": "validation"}, "training classes: some select the epoch"),
    "weights": ({"weights": None}, "weights: none"),
    "batch_size": ({"batch_size": 64}, "batch_size: 64"),
    "weight_decay": ({"weight_decay": 0.01}, "weight_decay: 0.01"),
    "schedule": ({"schedule": {"name": "cosine"}}, "schedule: cosine"),
    "embedding_size": ({"embedding_size": 64}, "embedding_size: 64"),
    "loss": (
        {"loss": {"name": "margin", "preset": "revisit", "margin": 0.5}},
        "margin.margin: 0.5",
    ),
    "loss without a preset": ({"loss": {"name": "circle"}}, "circle: the package's values"),
    "miner": (
        {"miner": {"name": "distance_weighted", "preset": "revisit", "lower": 0.3}},
        "distance_weighted.lower: 0.3",
    ),
    "regularizer": ({"regularizers": [{"name": "entropy"}]}, "entropy: the package's values"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_difference_is_listed_with_its_runs(kind: str, tmp_path: Path) -> None:
    planted, words = PLANTED[kind]
    listed = message(ROTH, "cub200", tmp_path, ALIKE, ALIKE, ALIKE | planted)
    (line,) = [line for line in listed if line.startswith(words)]
    assert " in 1 of 3 runs; the source has " in line


@pytest.mark.parametrize(
    ("source", "planted", "line"),
    [
        (PSOMAS, {"pooling": "avg"}, "pooling: avg in 1 of 1 runs; the source has avg+max."),
        (LI, {"refit": False}, "refit: False in 1 of 1 runs; the source has True."),
    ],
    ids=["pooling", "refit"],
)
def test_a_difference_from_other_sources_is_listed(
    source: Source, planted: Values, line: str, tmp_path: Path
) -> None:
    alike = source.expected({}, "cub200")
    loss = {"name": "contrastive", "preset": source.preset}
    assert message(source, "cub200", tmp_path / "as", alike | {"loss": loss}) == []
    lines = message(source, "cub200", tmp_path / "not", alike | {"loss": loss} | planted)
    assert line in lines


def test_what_is_compared_on_purpose_is_no_difference(tmp_path: Path) -> None:
    given = [ALIKE | {"batch_size": size} for size in (16, 112)]
    found = results(tmp_path, *given)
    assert [line[:10] for line in differences(ROTH, "cub200", run_configs([found]))] == [
        "batch_size"
    ]
    factors = {"batch_size": [16, 112]}
    compared = replace(found, plan=found.plan.model_copy(update={"factors": factors}))
    assert differences(ROTH, "cub200", run_configs([compared])) == []


def test_what_the_source_leaves_open_is_named() -> None:
    notes = ROTH.notes_of([ALIKE, ALIKE | {"backbone": "googlenet"}])
    assert len(notes) == 2
    assert "scale and shift" in notes[0]
    (norms,) = LI.notes_of([{"backbone": "googlenet"}])
    assert "57 batch norms" in norms


def test_values_that_sources_have_for_some_data_or_losses() -> None:
    assert LI.expected({}, "online_products")["sampler"]["name"] == "whole_classes"
    histogram = {"loss": {"name": "histogram"}}
    assert ROTH.expected(histogram, "online_products")["loss"] == {"nodes": 11}
    assert VO_HAYS.expected({}, "online_products")["schedule"]["milestones"] == [1000]
    small = PSOMAS.expected({"backbone": "googlenet", "loss": {"name": "arcface"}}, "cars196")
    assert (small["batch_size"], small["sampler"]) == (180, {"name": "random"})


def test_without_a_finished_run_nothing_is_known_to_differ(tmp_path: Path) -> None:
    assert message(ROTH, "cub200", tmp_path) == []


def test_of_a_part_only_what_the_source_says_is_compared(tmp_path: Path) -> None:
    def of_optimizer(given: Values) -> list[str]:
        source = Source("", "vo_hays", {"optimizer": VO_HAYS.values["optimizer"], "select": "test"})
        given = {"loss": {"name": "smooth_triplet", "preset": "vo_hays"}, "select": "test"} | given
        return message(source, "", tmp_path, given)

    assert of_optimizer({"optimizer": {"name": "sgd", "momentum": 0.9, "clip_norm": 1.0}}) == []
    assert of_optimizer({"optimizer": {"name": "sgd", "momentum": 0.5}}) == [
        "optimizer: sgd momentum 0.5 in 1 of 1 runs; the source has sgd momentum 0.9."
    ]


def test_what_was_trained_is_read_off_the_runs(tmp_path: Path) -> None:
    head = ALIKE | {"freeze_until": "pooled", "backbone": "efficientnet_lite0"}
    last = ALIKE | {"freeze_until": "layer3"}
    features = ALIKE | {"backbone": "features:16", "weights": None}
    nothing = ALIKE | {"weights": None}
    given = [ALIKE, ALIKE, nothing, head, last, features, ALIKE | {"adapter": {"name": "lora"}}]
    assert trained(resolved_configs([results(tmp_path, *given)])) == [
        "2 runs trained the whole of resnet50 from imagenet weights.",
        "1 run trained the whole of resnet50 from random weights.",
        "1 run trained a head on frozen efficientnet_lite0 (imagenet weights).",
        "1 run trained resnet50 (imagenet weights) from layer3 on, the layers before it frozen.",
        "1 run trained a head on given features; the network behind them did not change.",
        "1 run trained adapters in resnet50 (imagenet weights), whose own layers stay as they "
        "are, and a head.",
    ]


@pytest.mark.parametrize("source", [ROTH, PSOMAS, LI, JACOB, VO_HAYS], ids=lambda s: s.title)
def test_values_of_sources_are_values_of_a_config(source: Source) -> None:
    for value in source.values.values():
        assert not isinstance(value, Each) or set(value) <= set(PUBLISHED)
    assert source_values.WHOLE.items() <= source.values.items()
    for data in PUBLISHED:
        configs.make(resolved(source.values, data))

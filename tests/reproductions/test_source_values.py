"""What differs from a source is read off the runs."""

from pathlib import Path

import pytest

from unseen.config import schema as configs
from unseen.reproductions import source_values
from unseen.reproductions.published_study import PUBLISHED
from unseen.reproductions.source_values import (
    JACOB,
    LI,
    PSOMAS,
    ROTH,
    VO_HAYS,
    Each,
    differing,
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


def message(source: Values, data: str, out: Path, *given: Values) -> list[str]:
    return differing(source, data, resolved_configs([results(out, *given)]))


def test_a_run_as_the_source_made_it_differs_in_nothing(tmp_path: Path) -> None:
    assert message(ROTH, "cub200", tmp_path, ALIKE) == []
    assert message(ROTH, "online_products", tmp_path, ALIKE) == ["epochs: 150; the source has 100."]


def test_a_key_is_listed_where_no_run_has_the_sources_value(tmp_path: Path) -> None:
    other = {"lr": 1e-3, "sampler": {"name": "m_per_class"}, "freeze_until": "pooled"}
    short = [ALIKE | other | {"epochs": epochs} for epochs in (8, 40)]
    assert message(ROTH, "cub200", tmp_path, *short) == [
        "freeze_until: pooled; the source has none.",
        "sampler: 4 of a class; the source has 2 of a class.",
        "lr: 0.001; the source has 1e-05.",
        "epochs: 8, 40; the source has 150.",
    ]
    assert message(ROTH, "cub200", tmp_path, ALIKE, *short) == []


def test_without_a_finished_run_nothing_is_known_to_differ(tmp_path: Path) -> None:
    assert message(ROTH, "cub200", tmp_path) == []


def test_of_a_part_only_what_the_source_says_is_compared(tmp_path: Path) -> None:
    alike = {"optimizer": {"name": "sgd", "momentum": 0.9, "clip_norm": 1.0}}
    assert message({"optimizer": VO_HAYS["optimizer"]}, "", tmp_path, alike) == []
    other = {"optimizer": {"name": "sgd", "momentum": 0.5}}
    assert message({"optimizer": VO_HAYS["optimizer"]}, "", tmp_path, other) == [
        "optimizer: sgd momentum 0.5; the source has sgd momentum 0.9."
    ]
    few = {"sampler": {"name": "m_per_class", "preset": "horde", "steps": 7}}
    assert message({"sampler": JACOB["sampler"]}, "inshop", tmp_path, few) == [
        "sampler: 8 of a class, 7 batches an epoch; the source has 2 of a class, 200 batches an "
        "epoch."
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


@pytest.mark.parametrize("source", [ROTH, PSOMAS, LI, JACOB, VO_HAYS])
def test_values_of_sources_are_values_of_a_config(source: Values) -> None:
    for value in source.values():
        assert not isinstance(value, Each) or set(value) <= set(PUBLISHED)
    assert source_values.WHOLE.items() <= source.items()
    for data in PUBLISHED:
        values = resolved(source, data)
        assert differing(source, data, [configs.make(values).flat()]) == []

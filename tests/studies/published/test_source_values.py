"""What differs from a source is read off the runs."""

from pathlib import Path

import pytest

from unseen import config as configs
from unseen.config import Config
from unseen.studies import plan as plans
from unseen.studies.plan import Cell, Values
from unseen.studies.published import source_values
from unseen.studies.published.source_values import JACOB, LI, PSOMAS, ROTH, VO_HAYS, differing
from unseen.studies.published.study import PUBLISHED
from unseen.studies.results import Results, Run
from unseen.training.run_folder import RunFolder

ALIKE: Values = {
    "backbone": "resnet50", "weights": "imagenet", "freeze_until": None, "frozen_bn": "stats",
    "picture_size": 224, "embedding_size": 128, "optimiser": {"name": "adam"}, "lr": 1e-5,
    "weight_decay": 4e-4, "schedule": {"name": "constant"}, "batch_size": 112, "select": "test",
    "sampler": {"name": "samples_per_class", "preset": "revisit"}, "epochs": 150,
}  # fmt: skip


def results(out: Path, *given: Values) -> Results:
    """A study with a finished run of each config."""
    plan = plans.make({"name": "s", "seeds": [0], "factors": {"loss": ["margin"]}})
    runs = []
    for number, values in enumerate(given):
        folder = RunFolder(out / str(number))
        folder.write_text("config.toml", configs.make(values).to_toml())
        runs.append(Run(Cell("final", {"loss": "margin"}, {"seed": 0}), folder.path, "done"))
    return Results(plan, out, tuple(runs), ())


def test_a_run_as_the_source_made_it_differs_in_nothing(tmp_path: Path) -> None:
    assert differing(ROTH, "cub200", [results(tmp_path, ALIKE)]) == []
    assert differing(ROTH, "online_products", [results(tmp_path, ALIKE)]) == [
        "epochs: 150; the source has 100."
    ]


def test_a_key_is_listed_where_no_run_has_the_sources_value(tmp_path: Path) -> None:
    other = {"lr": 1e-3, "sampler": {"name": "samples_per_class"}, "freeze_until": "pooled"}
    short = [ALIKE | other | {"epochs": epochs} for epochs in (8, 40)]
    assert differing(ROTH, "cub200", [results(tmp_path, *short)]) == [
        "freeze_until: pooled; the source has none.",
        "lr: 0.001; the source has 1e-05.",
        "sampler: 4 of a class; the source has 2 of a class.",
        "epochs: 8, 40; the source has 150.",
    ]
    assert differing(ROTH, "cub200", [results(tmp_path, ALIKE, *short)]) == []


def test_without_a_finished_run_nothing_is_known_to_differ(tmp_path: Path) -> None:
    assert differing(ROTH, "cub200", [results(tmp_path)]) == []


@pytest.mark.parametrize("source", [ROTH, PSOMAS, LI, JACOB, VO_HAYS])
def test_values_of_sources_are_keys_of_a_config(source: Values) -> None:
    assert set(source) <= set(Config.model_fields)
    for value in source.values():
        assert not isinstance(value, dict) or set(value) == set(PUBLISHED)
    assert source_values.WHOLE.items() <= source.items()

"""What all published studies have in common: each runs its source where it is asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions import published_study as published_studies
from unseen.reproductions import source_values
from unseen.reproductions.published_study import Ask, find
from unseen.reproductions.source_values import differing, planned
from unseen.studies.findings import Section

OTHERS = ("cars196", "online_products")
OF_SOURCES = ("losses", "rho", "samplers", "mixup", "correlation", "density", "thesis", "layers",
              "horde", "parameters")  # fmt: skip


@pytest.mark.parametrize("name", OF_SOURCES)
@pytest.mark.parametrize(
    "data", ["cub200", *(pytest.param(data, marks=pytest.mark.slow) for data in OTHERS)]
)
def test_the_full_budget_on_photographs_is_the_source(name: str, data: str) -> None:
    study, ask = find(name), Ask(data, "full", seeds=1)
    plans = study.plans(ask)
    assert differing(study.source_values, data, planned(plans)) == []
    for config in planned(plans):
        assert config["weights"] == "imagenet"  # nothing is trained from random weights
        assert config["freeze_until"] is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rho", ["+4.7"]),  # of the switch under margin, beta 0.6
        ("samplers", ["79.79", "80.23"]),
        ("parameters", ["43.36"]),
        ("density", ["+9.7", "62.2"]),
        ("thesis", ["84.8", "90.5"]),
        ("horde", ["78.2 and 81.5 %", "86.4"]),
    ],
)
def test_tables_of_cars_stand_beside_runs_on_cars(
    name: str, values: list[str], unrun: Callable[..., list[Section]]
) -> None:
    sections = unrun(name, "cars196")
    tables = [line for each in sections for table in each.tables for line in table.markdown()]
    shown = "\n".join([*(text for each in sections for text in each.result), *tables])
    for value in values:
        assert value in shown


def test_a_network_without_its_weights_stops_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(name: str, weights: str) -> None:
        raise ValueError(f"cannot download the {weights} weights of {name}: give weights=FILE")

    monkeypatch.setattr(source_values, "create_backbone", offline)
    ask = Ask("cub200", "full", seeds=1)
    with pytest.raises(ValueError, match="cannot download the imagenet weights of resnet50"):
        published_studies.run(find("mixup"), ask, tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_smaller_budgets_keep_sampler_and_head(features: Path) -> None:
    (plan,) = find("losses").plans(Ask(str(features)))
    assert plan.config["sampler"] == {"name": "m_per_class", "preset": "revisit"}
    assert plan.config["head"] == {"start": "default"}
    assert "lr" not in plan.config
    (plan,) = find("losses").plans(Ask(str(features), "full", seeds=1))
    assert (plan.config["lr"], plan.config["epochs"], plan.config["batch_size"]) == (1e-5, 150, 112)
    assert "backbone" not in plan.config  # features have none
    (plan,) = find("losses").plans(Ask("glyphs", "full", seeds=1))
    assert (plan.config["epochs"], plan.config["batch_size"]) == (30, 112)
    assert "lr" not in plan.config


def test_what_was_measured_is_kept_without_images_under_the_new_keys() -> None:
    values = {"old": [{"sheet": "data:image/png;base64,AAAA", "columns": 3}], "rho": 0.5}
    result = published_studies._without_images(values, {"old": "new"})
    assert result == {"new": [{"sheet": "", "columns": 3}], "rho": 0.5}

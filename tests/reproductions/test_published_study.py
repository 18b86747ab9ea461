"""What all published studies have in common: each runs its source where it is asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions import published_study as published_studies
from unseen.reproductions import source_values
from unseen.reproductions.claims import claim_texts
from unseen.reproductions.published_study import find, names
from unseen.reproductions.request import Ask
from unseen.reproductions.source_values import planned
from unseen.studies.findings import Section

OTHERS = ("cars196", "online_products")
OF_SOURCES = ("losses", "rho", "samplers", "mixup", "correlation", "density", "thesis", "layers",
              "horde", "parameters")  # fmt: skip


EXPECTED = {  # by design, and said in words: the keys in which runs differ
    "density": {"lifted_structure", "contrastive.reduction", "entropy", "global_orthogonal"},
    "layers": {"lifted_structure", "refit", "training classes"},  # of parts of the classes
}


@pytest.mark.parametrize("name", OF_SOURCES)
@pytest.mark.parametrize(
    "data", ["cub200", *(pytest.param(data, marks=pytest.mark.slow) for data in OTHERS)]
)
def test_the_full_budget_on_photographs_is_the_source(name: str, data: str) -> None:
    study, ask = find(name), Ask(data, "full", seeds=1)
    plans = study.plans(ask)
    lines = study.setting_differences(ask, None)
    keys = {line.partition(":")[0] for line in lines if "; the source has " in line}
    assert keys == EXPECTED.get(name, set())
    for config in planned(plans):
        assert config["weights"] == "imagenet"  # nothing is trained from random weights
        assert config["freeze_until"] is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rho", ["+4.67"]),  # of the switch under margin, beta 0.6
        ("samplers", ["79.79", "80.23"]),
        ("parameters", ["43.36"]),
        ("density", ["+9.67", "62.17"]),
        ("thesis", ["84.77", "90.53"]),
        ("horde", ["+3.30", "86.4"]),
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


@pytest.mark.parametrize("name", names())
def test_a_page_before_any_run_claims_nothing(
    name: str, features: Path, unrun: Callable[..., list[Section]]
) -> None:
    data = "glyphs" if name in ("horde", "layers", "mixup") else features
    if name == "toy":  # which has no runs
        return
    sections = unrun(name, data)
    words = [text for each in sections for text in each.result]
    assert not find(name).answers or words[0].startswith("Every claim is inconclusive on ")
    assert not [text for text in words if "published –" in text or "nan" in text]


@pytest.mark.parametrize("name", names())
def test_claims_are_those_of_the_sources(
    name: str, features: Path, unrun: Callable[..., list[Section]]
) -> None:
    assert set(find(name).answers) <= set(claim_texts())


def test_rates_of_a_source_count_as_tuned_where_every_setting_is_its() -> None:
    (plan,) = find("losses").plans(Ask("cub200", "full"))
    assert plan.tuned_by == "Roth et al. 2020"
    for ask in (Ask("cub200"), Ask("cub200", "full", ("lr=0.001",)), Ask("glyphs", "full")):
        assert find("losses").plans(ask)[0].tuned_by == ""
    (plan,) = find("losses").plans(Ask("cub200", "full", tune=True))
    assert plan.tuned_by == ""
    assert plan.search is not None
    assert [each.key for each in plan.search.parameters] == ["lr"]
    assert (plan.config["select"], plan.config["validation_fraction"]) == ("validation", 0.3)


def test_tables_12_to_19_are_of_bn_inception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_values, "has_weights", lambda name: True)
    plans = {plan.name: plan for plan in find("thesis").plans(Ask("cub200", "full"))}
    for name in ("thesis_ratios", "thesis_folds", "thesis_search", "thesis_own"):
        config = plans[name].config
        values = tuple(config[key] for key in ("backbone", "embedding_size", "batch_size"))
        assert values == ("bn_inception", 512, 180)
    for config in planned(plans.values()):
        is_random = config["sampler"]["name"] == "random"
        assert is_random == (config["loss"]["name"] not in source_values.TUPLES)

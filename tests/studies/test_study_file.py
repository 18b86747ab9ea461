"""A study file becomes cells: every combination, the same seeds; mistakes are named."""

from pathlib import Path
from typing import Any

import pytest

from unseen.studies import study_file as plans
from unseen.studies.study_file import Plan
from unseen.studies.tuning import Outcome, chosen, known_runs, listed, total_runs, tuning_runs

FILE = """
name = "example"
seeds = [3, 4]

[config]
data = "glyphs"
epochs = 2

[factors]
loss = ["margin", { name = "triplet", margin = 0.3 }]
miner = ["none", "distance_weighted"]

[factors.regularizer]
none = {}
"density 10" = { regularizers = [{ name = "density", weight = 10.0 }], "loss.beta" = 0.6 }
"""


def made(**values: Any) -> Plan:
    return plans.make({"name": "x", "factors": {"loss": ["margin", "triplet"]}} | values)


def planned_runs(plan: Plan) -> list[Any]:
    return known_runs(plan, {})


def test_every_combination_with_every_seed(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE.replace(', "loss.beta" = 0.6', ""))
    plan = plans.load(tmp_path / "study.toml")
    result = planned_runs(plan)
    assert len(result) == total_runs(plan) == 2 * 2 * 2 * 2
    assert (
        len({planned.key for planned in result}) == len({planned.name for planned in result}) == 16
    )
    labels = result[-1].labels
    assert labels == {
        "loss": "triplet margin 0.3",
        "miner": "distance_weighted",
        "regularizer": "density 10",
    }
    assert result[-1].values["seed"] == 4
    assert result[-1].values["loss"] == {"name": "triplet", "margin": 0.3}
    assert result[0].values["miner"] is None
    assert all(planned.values["threads"] == 1 for planned in result)
    assert plans.parse(plan.to_toml()) == plan


def test_dotted_keys_reach_into_a_part() -> None:
    factors = {"loss": ["margin"], "loss.beta": [0.6, 1.2]}
    values = [planned.values["loss"] for planned in planned_runs(made(factors=factors, seeds=[0]))]
    assert values == [{"name": "margin", "beta": 0.6}, {"name": "margin", "beta": 1.2}]


def test_folds_are_runs_of_their_own() -> None:
    plan = made(config={"protocol": "k_fold", "folds": 4}, seeds=[0, 1])
    result = planned_runs(plan)
    assert len(result) == 2 * 2 * 4
    assert {planned.values["fold"] for planned in result} == {0, 1, 2, 3}


def test_a_key_depends_on_the_settings_alone() -> None:
    one, same = (planned_runs(made(about=text))[0] for text in ("", "words"))
    other = planned_runs(made(config={"epochs": 3}))[0]
    assert one.key == same.key != other.key


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"factors": {"los": ["margin"]}}, "did you mean loss"),
        ({"factors": {"loss": ["margn"]}}, "did you mean margin"),
        ({"factors": {"loss": ["margin", "margin"]}}, "must differ"),
        ({"factors": {"seed": [0, 1]}}, "seeds are no factor"),
        ({"factors": {"seed": {"a": {"lr": 0.1}}}}, "cannot be called seed"),
        ({"factors": {"recall@1": {"a": {"lr": 0.1}}}}, "cannot be called recall@1"),
        ({"factors": {"kind": {"a": {}, "b": {}}}}, "'a, seed 0' and 'b, seed 0' are the same run"),
        ({"factors": {"loss": []}}, "has no values"),
        ({"factors": {}}, r"nothing to compare: give \[factors\], a \[search\] to tune, or both"),
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"metric": "recall@3"}, "recall@"),
        ({"compare": "sampler"}, "unknown factor"),
        ({"nam": "y"}, "did you mean name"),
        ({"config": {"epochs": 0}}, "epochs"),
        ({"name": "a/b"}, "letters, digits, spaces"),
        ({"name": "cars [old]"}, r"letters, digits, spaces and _ \. \+ - only, got 'cars \[old\]'"),
        ({"name": 3}, "name"),
        ({"search": {"mode": "tpe", "parameters": [{"key": "lr"}]}}, "either values, or low"),
        (
            {"search": {"mode": "coordinate", "parameters": [{"key": "lr", "low": 1, "high": 2}]}},
            "values or a step",
        ),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**values)


def test_coordinates_go_one_by_one_and_keep_their_best() -> None:
    parameters = [
        {"key": "lr", "values": [0.1, 0.2, 0.3]},
        {"key": "loss.beta", "low": 0.6, "high": 1.2, "step": 0.3, "where": {"loss": "margin"}},
    ]
    search = {"mode": "coordinate", "config": {"epochs": 1}, "parameters": parameters}
    plan = made(search=search, seeds=[0])
    margin, triplet = plan.configurations()
    result = tuning_runs(plan, margin)
    assert [planned.parameters for planned in result] == [
        {"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3},
        {"loss.beta": 0.6}, {"loss.beta": 0.9}, {"loss.beta": 1.2},
    ]  # fmt: skip
    assert result[3].values["loss"] == {"name": "margin", "beta": 0.6}
    assert "lr" not in result[3].values
    assert len(tuning_runs(plan, triplet)) == 3
    assert all(planned.values["epochs"] == 1 for planned in result)
    values = [0.5, 0.7, 0.6, 0.1, 0.3, 0.2]
    outcomes = {
        planned.key: Outcome("done", value) for planned, value in zip(result, values, strict=True)
    }
    assert chosen(plan, margin, outcomes) == {"lr": 0.2, "loss.beta": 0.9}
    assert chosen(plan, triplet, outcomes) is None
    final = [planned for planned in known_runs(plan, outcomes) if planned.stage == "final"]
    assert [planned.values["lr"] for planned in final] == [0.2]
    outcomes[result[1].key] = Outcome("failed")
    assert chosen(plan, margin, outcomes) == {"lr": 0.3, "loss.beta": 0.9}


@pytest.mark.parametrize(
    ("tolerance", "rate"), [(0.0, 0.4), (0.005, 0.4), (0.015, 0.2), (0.05, 0.1)]
)
def test_of_rates_that_are_equal_within_a_tolerance_the_first_is_taken(
    tolerance: float, rate: float
) -> None:
    parameters = [{"key": "lr", "values": [0.1, 0.2, 0.3, 0.4]}]
    search = {"mode": "coordinate", "tolerance": tolerance, "parameters": parameters}
    plan = made(search=search, seeds=[0])
    margin = plan.configurations()[0]
    scores = [0.66, 0.69, 0.6, 0.7]
    result = zip(tuning_runs(plan, margin), scores, strict=True)
    assert chosen(plan, margin, {planned.key: Outcome("done", s) for planned, s in result}) == {
        "lr": rate
    }


def test_a_search_needs_no_factors() -> None:
    search = {"mode": "coordinate", "parameters": [{"key": "lr", "values": [0.1, 0.2]}]}
    plan = plans.make({"name": "one", "search": search, "seeds": [0, 1]})
    assert plan.compared == "study"
    (configuration,) = plan.configurations()
    assert configuration.labels == {"study": "one"}
    result = planned_runs(plan)
    assert [planned.title for planned in result] == ["one, lr=0.1, seed 0", "one, lr=0.2, seed 0"]
    outcomes = {planned.key: Outcome("done", planned.parameters["lr"]) for planned in result}
    final = [planned for planned in known_runs(plan, outcomes) if planned.stage == "final"]
    assert [(planned.values["lr"], planned.values["seed"]) for planned in final] == [
        (0.2, 0),
        (0.2, 1),
    ]
    assert plans.parse(plan.to_toml()) == plan
    factor, setting = {"factors": {"epochs": [3]}}, {"config": {"epochs": 3}, "factors": {}}
    keys = [
        [planned.key for planned in planned_runs(made(search=search, **v))]
        for v in (factor, setting)
    ]
    assert keys[0] == keys[1], "a factor of one value is a setting"


def test_the_grids_of_the_thesis() -> None:
    parameters = [
        plans.Parameter(key="loss.base", low=0.0, high=1.0, step=0.1),
        plans.Parameter(key="loss.alpha", low=2, high=100, step=2),
    ]
    margins, alphas = map(listed, parameters)
    assert margins == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert alphas == list(range(2, 101, 2))


def test_every_variant_gets_the_same_number_of_proposals() -> None:
    parameters = [{"key": "lr", "low": 1e-4, "high": 1e-2, "log": True}]
    plan = made(search={"mode": "tpe", "trials": 7, "parameters": parameters})
    assert [len(tuning_runs(plan, configuration)) for configuration in plan.configurations()] == [
        7,
        7,
    ]
    assert total_runs(plan) == 14 + 6


def test_a_stored_plan_compares_the_same_factor() -> None:
    """TOML writes lists before tables, in whatever order they were given."""
    text = """
    name = "term"
    [factors.term]
    without = {}
    with = { regularizers = [{ name = "density" }] }
    [factors]
    loss = ["margin", "triplet"]
    """
    plan = plans.parse(text)
    stored = plans.parse(plan.to_toml())
    assert stored.compared == plan.compared == "term"
    names, again = (
        [planned.name for v in p.configurations() for planned in v.planned_runs(p, {})]
        for p in (plan, stored)
    )
    assert names == again

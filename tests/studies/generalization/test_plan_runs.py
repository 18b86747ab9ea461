"""Methods by their words, what a budget runs, and a plan whose runs can be made."""

import numpy as np
import pytest

from unseen.config import schema as configs
from unseen.evaluation.shift_splits import ShiftSplits, ShiftStep
from unseen.studies.generalization.plan_runs import (
    SIZES,
    USUAL,
    Layers,
    Size,
    methods_of,
    plan_of,
    shots_for,
    size_of,
    usable_steps,
)
from unseen.studies.validity_checks import MIN_SEEDS, MIN_TRIALS


def test_methods() -> None:
    assert list(methods_of([])) == list(USUAL)
    result = methods_of(["margin", "triplet+metrix"])
    assert result["triplet+metrix"] == {"loss": "triplet", "regularizers": [{"name": "metrix"}]}
    with pytest.raises(ValueError, match=r"margn.*margin"):
        methods_of(["margn", "triplet"])
    with pytest.raises(ValueError, match="metrics"):
        methods_of(["margin+metrics", "triplet"])
    with pytest.raises(ValueError, match="two methods"):
        methods_of(["margin"])


def test_what_a_budget_runs() -> None:
    assert size_of("quick", range(1, 10), 5) == Size((1, 5, 9), 3, 3, 5)
    assert size_of("usual", range(1, 10), 5) == Size((1, 3, 5, 7, 9), 3, 3, 5)
    assert size_of("full", range(1, 9), 0) == Size((1, 3, 5, 6, 8), 5, 3, 0)
    enough = min(seeds for _, seeds, _ in SIZES.values()), min(t for _, _, t in SIZES.values())
    assert enough >= (MIN_SEEDS, MIN_TRIALS), "what a conclusion needs"


def test_steps_with_classes_enough_to_tune_on() -> None:
    def stages(*classes: int) -> ShiftSplits:
        steps = (ShiftStep(i, "", np.arange(n), np.arange(2)) for i, n in enumerate(classes, 1))
        return ShiftSplits(tuple(steps), "")

    assert usable_steps(stages(100, 100, 78, 34)) == (1, 2, 3)
    assert usable_steps(stages(20, 20, 16, 8)) == (1, 2, 3, 4), "nothing passes: all"


def test_shots_that_classes_can_spare() -> None:
    assert shots_for(np.repeat(np.arange(5), 20)) == 5
    assert shots_for(np.repeat(np.arange(5), 4)) == 2
    assert shots_for(np.repeat(np.arange(5), 3)) == 0


def test_a_plan() -> None:
    size = size_of("usual", range(1, 10), shots=2)
    plan = plan_of({"name": "glyphs"}, ["margin", "multi_similarity+s2sd"], size, ["epochs=3"])
    assert plan.config["epochs"] == 3
    shots = [
        configs.make(configuration.values).evaluation.shots
        for configuration in plan.configurations()
    ]
    assert shots == 2 * [[2], [], [], [], [2]], "at the first step and at the last"
    assert plan.compared == "method"
    assert len(plan.configurations()) == 2 * 5
    assert plan.search is not None
    (rate,) = plan.search.parameters
    assert rate.values == [1e-4, 3e-4, 1e-3]


def test_a_plan_of_layers() -> None:
    size, layers = (
        size_of("quick", range(1, 10), shots=2),
        Layers("stages.csv", "small_conv", rate=1e-3),
    )
    plan = plan_of({"name": "glyphs"}, ["margin", "triplet"], size, ["data.size=28"], layers)
    made = [configs.make(configuration.values) for configuration in plan.configurations()]
    assert [
        each.evaluation.protocol.shift.step for each in made if each.evaluation.protocol.shift
    ] == [1, 5, 9, 1, 5, 9]
    assert {
        each.evaluation.protocol.shift.table for each in made if each.evaluation.protocol.shift
    } == {"stages.csv"}
    assert made[0].data.values["size"] == 28
    assert plan.search is not None
    assert plan.search.parameters[0].values == [3e-4, 1e-3, 3e-3]

"""Which methods hold up best: areas by class against loops, and the words for every outcome."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.evaluation.evaluate import Score
from unseen.studies.generalization import conclusion
from unseen.studies.generalization.conclusion import area_effect, conclusion_of
from unseen.studies.results import Results, Run
from unseen.studies.run_files import PerClass
from unseen.studies.shift_results import area, trapezoid
from unseen.studies.study_file import Plan, make
from unseen.studies.validity_checks import Reason
from unseen.training.manifest import SplitMetadata
from unseen.training.result import Result, Row

DISTANCES = {1: 10.0, 5: 30.0, 9: 100.0}
TESTED = {1: range(20), 5: range(5, 25), 9: range(10, 20)}  # classes of each step
METHODS = ["margin", "triplet", "contrastive", "supcon", "proxy_anchor"]


def plan() -> Plan:
    factors = {"method": {m: {"loss": m} for m in METHODS}, "shift.step": list(DISTANCES)}
    config = {"protocol": "shift"}
    return make({"name": "made up", "seeds": [0, 1, 2], "config": config, "factors": factors})


@pytest.fixture
def results() -> Callable[..., Results]:
    """Of methods with a skill each; noise of single classes."""

    def build(skill: dict[str, float], noise: float = 0.02) -> Results:
        draw, runs, planned = np.random.default_rng(0), [], plan()
        for configuration in planned.configurations():
            for planned_run in configuration.planned_runs(planned, {}):
                step = planned_run.values["shift"]["step"]
                classes = list(TESTED[step])
                counts = [10 + c % 3 for c in classes]
                rate = skill[planned_run.labels["method"]] - DISTANCES[step] / 1000
                sums = [n * (rate + noise * draw.normal()) for n in counts]
                score = Score(sum(sums) / sum(counts))
                split: Any = SplitMetadata(shift=DISTANCES[step], shift_step=step)
                result = Result({"trained": Row({"recall@1": score})}, split=split)
                kept = PerClass("recall@1", classes, sums, counts, baselines={}, layers={})
                place = Path("nowhere")
                runs.append(Run(planned_run, place, "done", result=result, per_class=kept))
        return Results(planned, Path("nowhere"), tuple(runs), ())

    return build


def slow_area(results: Results, method: str, seed: int) -> float:
    runs = [r for r in results.runs if r.planned.labels["method"] == method]
    own = [r for r in runs if r.replicate[0] == seed]
    return area(list(DISTANCES.values()), [r.score("recall@1") for r in own])


def test_weights_are_those_of_the_area() -> None:
    x, y = [1.0, 2.0, 7.0, 9.0], [0.9, 0.4, 0.5, 0.1]
    assert sum(trapezoid(x)) == pytest.approx(1)
    assert np.dot(trapezoid(x), y) == pytest.approx(np.trapezoid(y, x) / (x[-1] - x[0]))
    assert np.dot(trapezoid(x), y) == pytest.approx(area(x, y))


def test_the_effect_is_the_difference_of_areas(results: Callable[..., Results]) -> None:
    made = results(dict(zip(METHODS, (0.7, 0.6, 0.5, 0.4, 0.3), strict=True)))
    result = area_effect(made, "triplet", "margin")
    assert result is not None
    slow = [slow_area(made, "margin", s) - slow_area(made, "triplet", s) for s in range(3)]
    assert result.value == pytest.approx(np.mean(slow))
    assert result.low < result.value < result.high
    assert (result.seeds, result.classes) == (3, 25)


def test_the_interval_covers_as_often_as_it_says(results: Callable[..., Results]) -> None:
    """Methods of equal skill, significantly different by chance in one case of twenty or less."""
    made = results(dict.fromkeys(METHODS, 0.6), noise=0.05)
    pairs = [(a, b) for i, a in enumerate(METHODS) for b in METHODS[:i]]
    result = [area_effect(made, *pair) for pair in pairs]
    assert sum(not f.low <= 0 <= f.high for f in result if f) <= 1


def test_three_that_are_significantly_different(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusion, "_failed", lambda results: {})
    made = results(dict(zip(METHODS, (0.7, 0.69, 0.68, 0.5, 0.49), strict=True)))
    result = conclusion_of(made)
    assert result.is_significant
    assert result.sentence.startswith("margin (")
    assert result.sentence.endswith("significantly different from all others.")
    assert [each.method for each in result.standings[:3]] == METHODS[:3]


def test_three_that_are_not(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusion, "_failed", lambda results: {})
    result = conclusion_of(results(dict.fromkeys(METHODS, 0.6), noise=0.1))
    assert not result.is_significant
    assert "not significantly different from all others" in result.sentence
    assert result.detail.startswith("The minimum detectable effect is ")
    assert result.sentence.endswith("which 3 hold up best is inconclusive.")


def test_those_below_are_named(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusion, "_failed", lambda results: {})
    result = conclusion_of(results(dict(zip(METHODS, (0.7, 0.7, 0.7, 0.7, 0.3), strict=True))))
    assert not result.is_significant
    assert result.detail.startswith(
        f"They are significantly different from {METHODS[4]}. The minimum detectable "
    )


def test_validity_checks_that_fail_are_the_answer(results: Callable[..., Results]) -> None:
    """Nothing was tuned, and no curve was kept."""
    result = conclusion_of(results(dict.fromkeys(METHODS, 0.6)))
    assert not result.is_significant
    assert "inconclusive: 0 of 5 pass the validity checks of a conclusion" in result.sentence
    assert "too few classes (10 to 20 of 30 to test) (5 methods)" in result.detail
    assert all("not tuned" in each.why for each in result.standings)


def test_reasons_of_one_kind_are_one(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [Reason.of("tuned on {} of {} validation classes", n, 30) for n in (8, 3)]
    assert str(few[0].covering(few)) == "tuned on 3 to 8 of 30 validation classes"
    low, high = (Reason.of("still rising by {} points", n, digits=1) for n in (1.3, 12.0))
    pca = Reason("not above PCA")
    kinds = conclusion._kinds([low, pca, high])
    assert [str(alike[0].covering(alike)) for alike in kinds] == [
        "still rising by 1.3 to 12.0 points", "not above PCA"
    ]  # fmt: skip
    failed = dict.fromkeys(METHODS, (Reason("still rising by {} points", ((2, 4),), digits=1),))
    failed[METHODS[0]] = (pca, replace(low, ranges=((1.5, 1.5),)))
    monkeypatch.setattr(conclusion, "_failed", lambda results: failed)
    result = conclusion_of(results(dict.fromkeys(METHODS, 0.6)))
    message = "Why: still rising by 1.5 to 4.0 points (5 methods); not above PCA (1 method). "
    assert result.detail.startswith(message)


def test_who_fails_is_left_out_of_the_ranking(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusion, "_failed", lambda results: {"margin": (Reason("not tuned"),)})
    made = results(dict(zip(METHODS, (0.9, 0.7, 0.69, 0.68, 0.3), strict=True)))
    result = conclusion_of(made)
    assert result.is_significant
    assert "Of the 4 methods that pass the validity checks, triplet" in result.sentence
    assert "margin" not in result.sentence

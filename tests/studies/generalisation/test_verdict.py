"""Which methods hold up best: areas by class against loops, and the words for every outcome."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.evaluation.evaluate import Score
from unseen.studies.generalisation import verdict
from unseen.studies.generalisation.verdict import area_effect, held_up
from unseen.studies.plan import Plan, make
from unseen.studies.results import Results, Run
from unseen.studies.run_files import PerClass
from unseen.studies.shift import area, trapezoid
from unseen.training.manifest import SplitFacts
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
        for variant in planned.variants():
            for cell in variant.cells(planned, {}):
                step = cell.values["shift"]["step"]
                classes = list(TESTED[step])
                counts = [10 + c % 3 for c in classes]
                rate = skill[cell.labels["method"]] - DISTANCES[step] / 1000
                sums = [n * (rate + noise * draw.normal()) for n in counts]
                score = Score(sum(sums) / sum(counts))
                split: Any = SplitFacts(shift=DISTANCES[step], shift_step=step)
                found = Result({"trained": Row({"recall@1": score})}, split=split)
                kept = PerClass("recall@1", classes, sums, counts)
                place = Path("nowhere")
                runs.append(Run(cell, place, "done", result=found, per_class=kept))
        return Results(planned, Path("nowhere"), tuple(runs), ())

    return build


def slow_area(results: Results, method: str, seed: int) -> float:
    runs = [r for r in results.runs if r.cell.labels["method"] == method]
    own = [r for r in runs if r.replicate[0] == seed]
    return area(list(DISTANCES.values()), [r.score("recall@1") for r in own])


def test_weights_are_those_of_the_area() -> None:
    x, y = [1.0, 2.0, 7.0, 9.0], [0.9, 0.4, 0.5, 0.1]
    assert sum(trapezoid(x)) == pytest.approx(1)
    assert np.dot(trapezoid(x), y) == pytest.approx(np.trapezoid(y, x) / (x[-1] - x[0]))
    assert np.dot(trapezoid(x), y) == pytest.approx(area(x, y))


def test_the_effect_is_the_difference_of_areas(results: Callable[..., Results]) -> None:
    made = results(dict(zip(METHODS, (0.7, 0.6, 0.5, 0.4, 0.3), strict=True)))
    found = area_effect(made, "triplet", "margin")
    assert found is not None
    slow = [slow_area(made, "margin", s) - slow_area(made, "triplet", s) for s in range(3)]
    assert found.value == pytest.approx(np.mean(slow))
    assert found.low < found.value < found.high
    assert (found.seeds, found.classes) == (3, 25)


def test_the_interval_covers_as_often_as_it_says(results: Callable[..., Results]) -> None:
    """Methods of equal skill, told apart at 80 % by chance in about one case of five."""
    made = results(dict.fromkeys(METHODS, 0.6), noise=0.05)
    pairs = [(a, b) for i, a in enumerate(METHODS) for b in METHODS[:i]]
    found = [area_effect(made, *pair, level=0.8) for pair in pairs]
    assert sum(not f.low <= 0 <= f.high for f in found if f) <= 5


def test_three_that_are_told_apart(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "_failed", lambda results: {})
    made = results(dict(zip(METHODS, (0.7, 0.69, 0.68, 0.5, 0.49), strict=True)))
    found = held_up(made)
    assert found.is_told
    assert found.sentence.startswith("margin (")
    assert found.sentence.endswith("told apart from all others.")
    assert [each.method for each in found.standings[:3]] == METHODS[:3]


def test_three_that_are_not(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "_failed", lambda results: {})
    found = held_up(results(dict.fromkeys(METHODS, 0.6), noise=0.1))
    assert not found.is_told
    assert "not told apart from all others" in found.sentence
    assert "points would have been seen" in found.detail
    assert found.sentence.endswith("which 3 hold up best cannot be told.")


def test_those_below_are_named(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "_failed", lambda results: {})
    found = held_up(results(dict(zip(METHODS, (0.7, 0.7, 0.7, 0.7, 0.3), strict=True))))
    assert not found.is_told
    assert found.detail.startswith(f"They are told apart from {METHODS[4]}. A difference of ")


def test_gates_that_fail_are_the_answer(results: Callable[..., Results]) -> None:
    """Nothing was tuned, and no curve was kept."""
    found = held_up(results(dict.fromkeys(METHODS, 0.6)))
    assert not found.is_told
    assert "cannot be told: 0 of 5 pass the gates of a verdict" in found.sentence
    assert "not tuned (5 methods)" in found.detail
    assert all("not tuned" in each.failed for each in found.standings)


def test_reasons_of_one_kind_are_one(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["tuned on 8 of 30 validation classes", "tuned on 3 of 30 validation classes"]
    assert verdict._ranged(few) == "tuned on 3 to 8 of 30 validation classes"
    rising = ["still rising by 1.3 points", "not above PCA", "still rising by 12.0 points"]
    assert [verdict._ranged(alike) for alike in verdict._kinds(rising)] == [
        "still rising by 1.3 to 12.0 points", "not above PCA"
    ]  # fmt: skip
    failed = dict.fromkeys(METHODS, "still rising by 2 to 4 points")
    failed[METHODS[0]] = "not above PCA; still rising by 1.5 points"
    monkeypatch.setattr(verdict, "_failed", lambda results: failed)
    found = held_up(results(dict.fromkeys(METHODS, 0.6)))
    told = "Why: still rising by 1.5 to 4 points (5 methods); not above PCA (1 method). "
    assert found.detail.startswith(told)


def test_who_fails_is_left_out_of_the_ranking(
    results: Callable[..., Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "_failed", lambda results: {"margin": "not tuned"})
    made = results(dict(zip(METHODS, (0.9, 0.7, 0.69, 0.68, 0.3), strict=True)))
    found = held_up(made)
    assert found.is_told
    assert "of the 4 that can be judged" in found.sentence
    assert "margin" not in found.sentence

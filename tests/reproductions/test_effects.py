"""Effects that sources claim: by loops, and inconclusive wherever a validity check fails."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.studies import test_validity_checks
from unseen.core.statistics import over_seeds
from unseen.reproductions.against_source import start_section, without_start_runs
from unseen.reproductions.effects import (
    Finding,
    against,
    changed,
    less,
    mean_gain,
    mean_of_sides,
    of_correlation,
    of_seeds,
    weighted,
)
from unseen.studies.results import Results
from unseen.studies.validity_checks import MethodRuns

study = test_validity_checks.study  # two methods, five seeds, 40 classes, and one fault at a time
R1 = "recall@1"


def sides(results: Results) -> tuple[MethodRuns, MethodRuns]:
    return MethodRuns(results, "", "plain"), MethodRuns(results, "", "good")


def recall(run: Any) -> float:
    return 100 * float(run.score(R1))


MAKERS: Mapping[str, Callable[[Results], Finding]] = {
    "two methods": lambda results: against(results, "plain", "good"),
    "the mean of pairs": lambda results: mean_gain("x", [sides(results)] * 2),
    "a weighted sum": lambda results: weighted(
        "x", [(-1, sides(results)[0], R1), (1, sides(results)[1], R1)]
    ),
    "a number of runs": lambda results: changed("x", sides(results), recall),
    "a number of one method": lambda results: of_seeds(
        "x", mean_of_sides([sides(results)[1]], recall), sides(results)
    ),
    "a correlation": lambda results: of_correlation("x", (0.5, 0.4, 0.6), sides(results)),
}
FAULTS: Mapping[str, tuple[dict[str, Any], str]] = {
    "untrained": ({"without": {"untrained": 0.65}}, "not above the untrained network"),
    "PCA": ({"without": {"principal": 0.65}}, "not above the PCA baseline"),
    "flat": ({"curve": {"good": test_validity_checks.RISING}}, "still rising by 11.1 points"),
    "tuned": ({"trials": {"good": 0, "plain": 0}}, "not tuned"),
    "seeds": ({"seeds": 2}, "2 of 3 seeds"),
    "classes": ({"classes": 29}, "too few classes (29 of 30 to test)"),
    "runs": ({"state": "failed"}, "0 of 10 runs done"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_effect_is_claimed_where_a_check_fails(study: Any, fault: str) -> None:
    values, why = FAULTS[fault]
    fine = study()
    assert {make(fine).word for make in MAKERS.values()} == {"holds"}
    faulty = study(**values)
    for name, make in MAKERS.items():
        finding = make(faulty)
        assert finding.word == "inconclusive", name
        assert why in finding.conclusion or finding.why == "not measured", name


def test_a_gain_over_pairs_by_loops(study: Any) -> None:
    """The mean over pairs, seed by seed and class by class: pairs are no sample."""
    results = study()
    plain, good = sides(results)
    finding = mean_gain("x", [(plain, good), (good, plain), (plain, good)])
    values = []
    for before, after in zip(plain.runs, good.runs, strict=True):
        gains = [
            after.score(R1) - before.score(R1),
            before.score(R1) - after.score(R1),
            after.score(R1) - before.score(R1),
        ]
        values.append(100 * sum(gains) / 3)
    assert finding.value == pytest.approx(sum(values) / len(values))
    alone = against(results, "plain", "good")
    assert finding.high - finding.low == pytest.approx((alone.high - alone.low) / 3)


def test_numbers_of_seeds_by_hand(study: Any) -> None:
    results = study()
    plain, good = sides(results)
    finding = changed("x", (plain, good), recall)
    values = [recall(b) - recall(a) for a, b in zip(plain.runs, good.runs, strict=True)]
    spread = over_seeds(values)
    assert (finding.value, finding.low) == pytest.approx((spread.mean, spread.low))
    both = mean_of_sides((plain, good), recall)
    assert both[0, 0] == pytest.approx((recall(plain.runs[0]) + recall(good.runs[0])) / 2)
    assert less({(0, 0): 3.0, (1, 0): 1.0}, {(0, 0): 1.0}) == {(0, 0): 2.0}


def test_methods_that_are_not_run_and_networks_before_training(study: Any) -> None:
    results = study(curve={"good": test_validity_checks.RISING}, trials={"good": 0, "plain": 0})
    assert against(results, "plain", "missing").why == "not run"
    assert mean_gain("x", []).why == "not run"
    before = weighted("x", [(1, sides(results)[1], R1)], row="untrained")
    assert before.word == "holds"  # nothing is trained or tuned
    assert before.value == pytest.approx(20, abs=2)


def test_runs_that_kept_their_start_count_as_not_done(study: Any) -> None:
    results = study()
    kept = replace(results.runs[-1].selection or test_validity_checks.Selection(
        "validation", R1, epoch=0, value=0.5, classes=30), epoch=-1)  # fmt: skip
    runs = (*results.runs[:-1], replace(results.runs[-1], selection=kept))
    results = replace(results, runs=runs)
    finding = against(without_start_runs(results), "plain", "good")
    assert finding.conclusion == "inconclusive: 9 of 10 runs done"
    (section,) = start_section({"s": results})
    assert section.result[0].startswith("1 of 10 runs kept the weights they began with")
    assert [str(cell) for cell in section.tables[0].rows[0]] == ["s", "", "good", "1 of 5"]
    assert start_section({"s": study()}) == []
    spread = [math.isnan(run.score(R1)) for run in without_start_runs(results).runs]
    assert np.flatnonzero(spread).tolist() == [9]

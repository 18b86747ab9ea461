"""Synthetic studies with one fault each: no conclusion, and the fault by name; without a fault the
conclusion that the interval gives."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from unseen.core.statistics import POWER
from unseen.evaluation.evaluate import Score
from unseen.studies import study_file as plans
from unseen.studies import study_tables, validity_checks
from unseen.studies.results import Results, Run, effect
from unseen.studies.run_files import PerClass
from unseen.studies.study_file import PlannedRun
from unseen.studies.study_report import headline
from unseen.studies.validity_checks import Compared, MethodRuns, comparisons, last_rise
from unseen.training import event_log
from unseen.training.events import Epoch
from unseen.training.manifest import SplitMetadata
from unseen.training.result import Result, Row
from unseen.training.selected_weights import Selection

FLAT = (0.3, 0.45, 0.55, 0.6, 0.61, 0.61, 0.61, 0.61, 0.61, 0.61)
RISING = tuple(0.2 + epoch / 18 for epoch in range(10))
CLASSES, SEEDS = 40, 5
Study = Callable[..., Results]


@cache
def plan_of(values: str) -> plans.Plan:
    return plans.make(json.loads(values))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two methods, five seeds, 40 test classes; `good` is 5 points above `plain`, both far above
    what is not trained; curves are flat; both were tuned. `fault` makes one thing different."""

    def make(**fault: Any) -> Results:
        rng = np.random.default_rng(0)
        seeds = list(range(fault.get("seeds", SEEDS)))
        num_classes = fault.get("classes", CLASSES)
        factors = {"method": {"plain": {}, "good": {"lr": 0.1}}}
        values = {"name": "s", "seeds": seeds, "factors": factors} | fault.get("plan", {})
        plan = plan_of(json.dumps(values))
        names = [configuration.labels["method"] for configuration in plan.configurations()]
        level = {"plain": 0.6, "good": 0.65, "third": 0.6} | fault.get("level", {})
        of_class = 0.1 * rng.normal(size=num_classes)
        runs, searches = [], []
        for name in names:
            for seed in seeds:
                noise = 0.01 * rng.normal() + 0.05 * rng.normal(size=num_classes)
                noise *= 0.1 if fault.get("steady") else 1.0 - bool(fault.get("equal"))
                trained = level[name] + of_class + noise
                rest = {"untrained": 0.2, "principal": 0.3} | fault.get("without", {})
                runs.append(run(tmp_path, name, seed, trained, of_class, rest, fault))
            for number in range(fault.get("trials", {}).get(name, 5)):
                planned = PlannedRun(
                    "search", {"method": name}, {"seed": 0}, {fault.get("key", "lr"): 0.1}
                )
                chosen = Selection("validation", "recall@1", epoch=0, value=0.5, classes=30)
                chosen = replace(chosen, **fault.get("search", {}))
                result = replace(planned, number=number)
                searches.append(Run(result, tmp_path, "done", selection=chosen))
        return Results(plan, tmp_path, tuple(runs), tuple(searches))

    return make


def run(
    out: Path,
    name: str,
    seed: int,
    trained: np.ndarray,
    of_class: np.ndarray,
    rest: dict[str, float],
    fault: dict[str, Any],
) -> Run:
    folder, planned = out / f"{name}{seed}", PlannedRun("final", {"method": name}, {"seed": seed})
    folder.mkdir(exist_ok=True)
    curve = fault.get("curve", {}).get(name, FLAT)
    events = [
        Epoch(i, i + 1, {"loss": 0.5}, 0.1, 1.0, 90.0, {"recall@1": value})
        for i, value in enumerate(curve)
    ]
    (folder / "events.jsonl").write_text(event_log.text_of(events))
    counts = [20] * len(trained)
    rows = {row: value + of_class for row, value in rest.items()}
    per_class = PerClass(
        "recall@1",
        classes=list(range(len(trained))),
        counts=counts,
        sums=(20 * trained).tolist(),
        baselines={row: (20 * values).tolist() for row, values in rows.items()},
        layers={},
    )
    scores = {
        row: Row({"recall@1": Score(float(values.mean()))})
        for row, values in {"trained": trained, **rows}.items()
    }
    result = Result(scores, split=SplitMetadata(train_classes=170, validation_classes=30))
    return Run(planned, folder, fault.get("state", "done"), result=result, per_class=per_class)


def compared(
    against: MethodRuns, side: MethodRuns, published: float = math.nan, metric: str = "recall@1"
) -> Compared:
    result = effect(against.runs, side.runs, metric)
    return validity_checks.compared(against, side, result, published, metric)


def only(results: Results) -> Compared:
    (result,) = comparisons(results)
    return result


def test_a_study_without_a_fault_has_a_conclusion(study: Study) -> None:
    result = only(study())
    assert (result.against, result.method, result.conclusion) == ("good", "plain", "worse")
    assert all(validity_check.passed for validity_check in result.validity_checks)
    assert result.effect is not None
    assert result.effect.low < -0.05 < result.effect.high < 0
    assert study().comparisons()[0].conclusion == "worse"
    assert only(study(plan={"reference": "plain"})).conclusion == "better"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"without": {"untrained": 0.65}}, "not above the untrained network"),
        ({"without": {"principal": 0.65}}, "not above the PCA baseline"),
        ({"curve": {"good": RISING}}, "still rising by 11.1 points (good)"),
        ({"curve": {"plain": FLAT[:4]}}, "no curve of 5 epochs (plain)"),
        ({"seeds": 1}, "1 of 3 seeds"),
        ({"seeds": 2}, "2 of 3 seeds"),
        ({"classes": 29}, "too few classes (29 of 30 to test)"),
        ({"level": {"good": 0.6}, "equal": True}, "too few classes (none of 40 differs)"),
        ({"state": "failed"}, "0 of 10 runs done"),
        ({"level": {"good": math.nan}}, "not measured"),
        ({"trials": {"good": 0, "plain": 0}}, "not tuned"),
        ({"key": "loss.margin"}, "not tuned"),
        ({"trials": {"good": 2, "plain": 2}}, "tuned by 2 of 3 trials"),
        ({"trials": {"good": 7}}, "tuned by 5 and 7 trials"),
        ({"search": {"classes": 29}}, "tuned on 29 of 30 validation classes"),
        ({"search": {"on": "test"}}, "tuned on test classes"),
    ],
)  # fmt: skip
def test_what_fails_a_validity_check_cannot_be_evaluated(
    study: Study, fault: dict[str, Any], why: str
) -> None:
    results = study(**fault)
    message = only(results).conclusion
    assert message.startswith("inconclusive: ")
    assert why in message
    sides = MethodRuns(results, "", "plain"), MethodRuns(results, "", "good")
    for published in (5.0, -5.0, 0.0, math.nan):
        assert compared(*sides, published).conclusion.startswith("inconclusive: ")
    assert "inconclusive" in study_tables.markdown(results)
    assert "inconclusive" in study_tables.latex(results)


def test_a_rising_curve_is_one_that_would_leave_the_interval(study: Study) -> None:
    """Half of the effect's interval is allowed, at most 1 point, and falling always is."""
    for steady in (False, True):
        effect = only(study(steady=steady)).effect
        assert effect is not None
        assert (effect.half < 0.01) == steady
        allowed = effect.half if steady else 0.01
        for rise, passes in ((0.9, True), (1.1, False), (-50.0, True)):
            curve = [*FLAT[:8], *(0.61 + rise * allowed for _ in range(2))]
            result = only(study(steady=steady, curve={"good": curve})).validity_checks
            (validity_check,) = [g for g in result if (g.method, g.name) == ("good", "flat curve")]
            assert validity_check.passed == passes


@pytest.mark.parametrize("length", [5, 8, 12, 24, 150])
def test_the_last_fifth_by_loops(length: int) -> None:
    curve = np.random.default_rng(length).normal(size=length).tolist()
    fifth, last, before = round(length / 5), 0.0, 0.0
    for i in range(fifth):
        last += curve[length - 1 - i] / fifth
        before += curve[length - 1 - fifth - i] / fifth
    assert last_rise(curve) == pytest.approx(last - before)


def test_a_tenth_of_many_classes_is_needed_to_tune(study: Study) -> None:
    results = study()
    many = SplitMetadata(train_classes=600, validation_classes=30)
    runs = tuple(
        replace(each, result=replace(each.result, split=many))
        for each in results.runs
        if each.result
    )
    assert "tuned on 30 of 63 validation classes" in only(replace(results, runs=runs)).conclusion


@pytest.mark.parametrize(
    ("published", "word"),
    [
        (5.0, "holds"),
        (9.0, "smaller"),
        (1.0, "larger"),
        (0.0, "larger"),
        (-5.0, "opposite"),
        (math.nan, "better"),
    ],
)
def test_conclusions_compare_intervals_not_signs(study: Study, published: float, word: str) -> None:
    results = study()
    result = compared(MethodRuns(results, "", "plain"), MethodRuns(results, "", "good"), published)
    assert result.conclusion == word
    down = compared(MethodRuns(results, "", "good"), MethodRuns(results, "", "plain"), -published)
    assert down.conclusion == ("worse" if word == "better" else word)


def test_no_difference_says_what_would_have_been_seen(study: Study) -> None:
    results = study(level={"good": 0.605})
    for published in (3.0, 0.0, math.nan):
        result = compared(
            MethodRuns(results, "", "plain"), MethodRuns(results, "", "good"), published
        )
        assert result.effect is not None
        seen = f"minimum detectable effect: {100 * result.effect.detectable:.1f} points"
        assert result.conclusion == f"no significant difference ({seen})"


def test_a_metric_that_is_not_known_by_class_cannot_be_evaluated(study: Study) -> None:
    results = study()
    for each in results.runs:
        assert each.result is not None
        for row in each.result.scores.values():
            row.metrics["nmi"] = row.metrics["recall@1"]
    result = compared(
        MethodRuns(results, "", "plain"), MethodRuns(results, "", "good"), 5.0, metric="nmi"
    )
    assert result.effect is not None
    assert result.effect.low < 0.05 < result.effect.high
    assert "NMI is not known class by class" in result.conclusion


def test_intervals_of_several_methods_hold_together(study: Study) -> None:
    factors = {"method": {"plain": {}, "good": {"lr": 0.1}, "third": {"lr": 0.2}}}
    widths = {}
    for reference, pairs in (("", 3), ("good", 2)):
        plan = {"factors": factors} | ({"reference": reference} if reference else {})
        results = study(plan=plan, seeds=3)
        result = comparisons(results)
        assert [each.against for each in result] == ["good", "good"]
        alone = compared(MethodRuns(results, "", "good"), MethodRuns(results, "", "plain"))
        each = next(each for each in result if each.method == "plain")
        assert each.effect is not None
        assert alone.effect is not None
        widths[pairs] = each.effect.half / alone.effect.half
    assert 1 < widths[2] < widths[3]


def test_the_tables_say_what_passed_in_words(study: Study) -> None:
    conclusions, passed = study_tables.evaluated_tables(comparisons(study(trials={"good": 0})))
    assert conclusions.rows[0][:2] == ["plain", "good"]
    rows = {(row[0], row[1]): str(row[-1]) for row in passed.rows}
    assert rows["good", "tuned"] == "no: not tuned"
    assert rows["plain", "tuned"] == "passed"
    assert rows["plain, good", "sample"] == "passed"
    assert len(passed.rows) == 9


def test_the_highest_is_called_best_only_where_others_are_evaluated_worse(study: Study) -> None:
    assert headline(study()).before.startswith("good is best of 2 by R@1")
    assert headline(study(seeds=1)).before.startswith("good has the highest R@1 of 2")


def test_a_reference_is_one_of_the_methods() -> None:
    with pytest.raises(ValueError, match="reference"):
        plans.make({"name": "s", "factors": {"loss": ["margin"]}, "reference": "triplet"})


def test_an_arm_is_the_network_of_another_at_another_layer(study: Study) -> None:
    message = {"plain at pooled": "plain", "good": "plain"}
    results = study(plan={"reference": message, "published": {"plain at pooled": 3.1}})
    assert results.methods() == ["plain", "good", "plain at pooled"]
    assert (
        comparisons(results)[0].word == validity_checks.INCONCLUSIVE
    )  # no run was evaluated there
    runs = []
    for each in results.runs:
        kept = each.per_class
        assert kept is not None
        higher = [value + 20 * 0.03 for value in kept.sums]
        rows = {"pooled": {"trained": higher, **kept.baselines}}
        runs.append(replace(each, per_class=replace(kept, layers=rows)))
    result = comparisons(replace(results, runs=tuple(runs)))
    assert [(each.method, each.against) for each in result] == [*message.items()]
    assert result[0].effect is not None
    assert result[0].effect.value == pytest.approx(0.03)
    read = replace(results, runs=tuple(runs)).of("", "plain at pooled")[0].result
    assert read is not None
    assert (read.thirds, read.gain) == (None, None)  # those are of the run's own layer
    assert result[0].conclusion == "smaller"  # the same 3 points in every class: no spread at all
    with pytest.raises(ValueError, match="as a reference"):
        plans.make(
            {"name": "s", "factors": {"loss": ["margin"]}, "reference": {"x at y": "margin"}}
        )


@pytest.mark.parametrize(("reached", "passed"), [(0.55, True), (0.493, True), (0.48, False)])
def test_a_rate_that_short_trials_liked_must_suit_the_runs(
    study: Study, reached: float, passed: bool
) -> None:
    results = study()
    chosen = Selection("validation", "recall@1", epoch=0, value=reached, classes=30)
    other = replace(chosen, value=0.1)  # of seeds without a trial: nothing to compare with
    runs = tuple(
        replace(run, selection=other if run.replicate[0] else chosen) for run in results.runs
    )
    result = only(replace(results, runs=runs))
    assert (result.word != validity_checks.INCONCLUSIVE) == passed
    assert ("2.0 points below the trial it was tuned by" in result.conclusion) != passed


def test_each_arm_can_have_a_reference_of_its_own(study: Study) -> None:
    factors = {"method": {"plain": {}, "good": {"lr": 0.1}, "third": {"lr": 0.2}}}
    message = {"good": "plain", "plain": "third"}
    results = study(plan={"factors": factors, "reference": message, "published": {"good": 4.9}})
    result = comparisons(results)
    assert [(each.method, each.against, each.pairs) for each in result] == [
        ("good", "plain", 1),
        ("plain", "third", 1),
    ]
    assert result[0].conclusion == "holds"
    assert math.isnan(result[1].published)
    assert (
        result[0].effect
        == compared(MethodRuns(results, "", "plain"), MethodRuns(results, "", "good")).effect
    )
    shared = {"good": "plain", "third": "plain"}
    result = comparisons(study(plan={"factors": factors, "reference": shared}))
    assert [each.pairs for each in result] == [2, 2]


@pytest.mark.parametrize(("difference", "fraction"), [(0.0, 0.05), (0.0253, POWER)])
def test_of_400_studies_as_many_get_a_conclusion_as_was_stated(
    monkeypatch: pytest.MonkeyPatch, difference: float, fraction: float
) -> None:
    """Whole comparisons but for their files: the right word for a known effect as often as the
    detectable effect says, and without one hardly ever any."""
    rng, words, stated = np.random.default_rng(7), [], []
    monkeypatch.setattr(
        validity_checks,
        "_flat",
        lambda side, *rest: validity_checks.ValidityCheck("", "", ""),
    )
    monkeypatch.setattr(
        validity_checks, "_tuned", lambda side: validity_checks.ValidityCheck("", "", "")
    )
    monkeypatch.setattr(
        validity_checks,
        "_above",
        lambda side, *rest: validity_checks.ValidityCheck("", "", ""),
    )
    plan = plans.make({"name": "s", "seeds": list(range(5)), "factors": {"loss": ["margin"]}})
    counts = np.random.default_rng(1).integers(20, 60, 100)
    plain = Results(plan, Path(), tuple(_run(seed, 0.5 * counts, counts) for seed in range(5)), ())
    for _ in range(400):
        by_seed, by_class = 0.01 * rng.normal(size=(5, 1)), 0.04 * rng.normal(size=100)
        rest = rng.normal(size=(5, 100)) * np.sqrt(0.3 / counts)
        sums = (0.5 + difference + by_seed + by_class + rest) * counts
        runs = tuple(_run(seed, each, counts) for seed, each in enumerate(sums))
        result = compared(
            MethodRuns(plain, "", "margin"), MethodRuns(replace(plain, runs=runs), "", "margin")
        )
        words.append(result.conclusion)
        assert result.effect is not None
        stated.append(result.effect.detectable)
    assert np.mean(stated) == pytest.approx(0.0253, rel=0.03)
    right = sum(word == "better" for word in words)
    others = sum(word == "worse" for word in words)
    if difference:
        low, high = stats.binom.interval(0.95, 400, fraction)
        assert low <= right <= high
        assert others == 0
    else:
        assert right + others <= 0.07 * 400


def _run(seed: int, sums: np.ndarray, counts: np.ndarray) -> Run:
    classes = list(range(100))
    per_class = PerClass("recall@1", classes, sums.tolist(), counts.tolist(), {}, layers={})
    planned = PlannedRun("final", {"loss": "margin"}, {"seed": seed})
    return Run(planned, Path(), "done", per_class=per_class)


def test_a_study_file_can_say_what_was_published(study: Study) -> None:
    message = {"reference": "plain", "published": {"good": 4.9}}
    (result,) = comparisons(study(plan=message))
    assert (result.published, result.conclusion) == (4.9, "holds")
    (result,) = comparisons(study(plan=message | {"published": {"good": -4.9}}))
    assert result.conclusion == "opposite"
    (table, _) = study_tables.evaluated_tables([result])
    assert "published" in table.heads


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"published": {"margin": 1.0}}, "need the method they are against"),
        ({"published": {"margn": 1.0}, "reference": "margin"}, "did you mean margin"),
        ({"published": {"margin": 1.0}, "reference": {"triplet": "margin"}}, "what margin is"),
        ({"reference": {"triplet": "margn"}}, "did you mean margin"),
        ({"reference": {"triplt": "margin"}}, "did you mean triplet"),
        ({"reference": {"triplet": "triplet"}}, "with itself"),
    ],
)
def test_published_effects_are_of_arms(values: dict[str, Any], message: str) -> None:
    factors = {"loss": ["margin", "triplet"]}
    with pytest.raises(ValueError, match=message):
        plans.make({"name": "s", "factors": factors} | values)


def test_an_effect_is_published_for_one_experiment() -> None:
    values = {
        "name": "s",
        "factors": {"loss": ["margin", "triplet"], "embedding_size": [8, 16]},
        "reference": "margin",
        "published": {"embedding_size 8: triplet": -2.0},
    }
    plan = plans.make(values)
    sides = [
        MethodRuns(Results(plan, Path(), (), ()), f"embedding_size {n}", "triplet") for n in (8, 16)
    ]
    assert validity_checks._published(sides[0]) == -2.0
    assert math.isnan(validity_checks._published(sides[1]))

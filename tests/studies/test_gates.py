"""Synthetic studies with one fault each: no verdict, and the fault by name; without a fault the
verdict that the interval gives."""

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

from unseen.evaluation.evaluate import Score
from unseen.statistics import POWER
from unseen.studies import gates, tables
from unseen.studies import plan as plans
from unseen.studies.gates import Arm, Compared, compared, comparisons, last_rise
from unseen.studies.plan import Cell
from unseen.studies.report import headline
from unseen.studies.results import Results, Run
from unseen.studies.run_files import PerClass
from unseen.training import journal
from unseen.training.events import Epoch
from unseen.training.manifest import SplitFacts
from unseen.training.result import Result, Row
from unseen.training.selection import Selection

FLAT = (0.3, 0.45, 0.55, 0.6, 0.61, 0.61, 0.61, 0.61, 0.61, 0.61)
RISING = tuple(0.2 + epoch / 18 for epoch in range(10))
CLASSES, SEEDS = 40, 5
Study = Callable[..., Results]


@cache
def plan_of(values: str) -> plans.Plan:
    return plans.make(json.loads(values))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two arms, five seeds, 40 test classes; `good` is 5 points above `plain`, both far above what
    is not trained; curves are flat; both were tuned. What is given makes one thing different."""

    def make(**fault: Any) -> Results:
        rng = np.random.default_rng(0)
        seeds = list(range(fault.get("seeds", SEEDS)))
        num_classes = fault.get("classes", CLASSES)
        factors = {"method": {"plain": {}, "good": {"lr": 0.1}}}
        values = {"name": "s", "seeds": seeds, "factors": factors} | fault.get("plan", {})
        plan = plan_of(json.dumps(values))
        names = [variant.labels["method"] for variant in plan.variants()]
        level = {"plain": 0.6, "good": 0.65, "third": 0.6} | fault.get("level", {})
        of_class = 0.1 * rng.normal(size=num_classes)
        runs, searches = [], []
        for name in names:
            for seed in seeds:
                noise = 0.01 * rng.normal() + 0.05 * rng.normal(size=num_classes)
                noise *= 0.1 if fault.get("steady") else 1.0
                trained = level[name] + of_class + noise
                rest = {"untrained": 0.2, "principal": 0.3} | fault.get("without", {})
                runs.append(run(tmp_path, name, seed, trained, of_class, rest, fault))
            for number in range(fault.get("trials", {}).get(name, 5)):
                cell = Cell("search", {"method": name}, {"seed": 0}, {fault.get("key", "lr"): 0.1})
                chosen = Selection("validation", "recall@1", epoch=0, value=0.5, classes=30)
                chosen = replace(chosen, **fault.get("search", {}))
                found = replace(cell, number=number)
                searches.append(Run(found, tmp_path, "done", selection=chosen))
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
    folder, cell = out / f"{name}{seed}", Cell("final", {"method": name}, {"seed": seed})
    folder.mkdir(exist_ok=True)
    curve = fault.get("curve", {}).get(name, FLAT)
    events = [
        Epoch(i, i + 1, {"loss": 0.5}, 0.1, 1.0, 90.0, {"recall@1": value})
        for i, value in enumerate(curve)
    ]
    (folder / "journal.jsonl").write_text(journal.text_of(events))
    counts = [20] * len(trained)
    rows = {row: value + of_class for row, value in rest.items()}
    per_class = PerClass(
        "recall@1",
        classes=list(range(len(trained))),
        counts=counts,
        sums=(20 * trained).tolist(),
        baselines={row: (20 * values).tolist() for row, values in rows.items()},
    )
    scores = {
        row: Row({"recall@1": Score(float(values.mean()))})
        for row, values in {"trained": trained, **rows}.items()
    }
    result = Result(scores, split=SplitFacts(train_classes=170, validation_classes=30))
    return Run(cell, folder, fault.get("state", "done"), result=result, per_class=per_class)


def only(results: Results) -> Compared:
    (found,) = comparisons(results)
    return found


def test_a_study_without_a_fault_has_a_verdict(study: Study) -> None:
    found = only(study())
    assert (found.against, found.arm, found.verdict) == ("good", "plain", "worse")
    assert all(gate.passed for gate in found.gates)
    assert found.effect is not None
    assert found.effect.low < -0.05 < found.effect.high < 0
    assert study().comparisons()[0].verdict == "worse"
    assert only(study(plan={"reference": "plain"})).verdict == "better"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"without": {"untrained": 0.65}}, "not above the untrained network"),
        ({"without": {"principal": 0.65}}, "not above the principal components"),
        ({"curve": {"good": RISING}}, "still rising by 11.1 points (good)"),
        ({"curve": {"plain": FLAT[:4]}}, "no curve of 5 epochs (plain)"),
        ({"seeds": 1}, "1 of 3 seeds"),
        ({"seeds": 2}, "2 of 3 seeds"),
        ({"classes": 9}, "9 of 10 test classes"),
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
def test_what_fails_a_gate_cannot_be_judged(study: Study, fault: dict[str, Any], why: str) -> None:
    results = study(**fault)
    told = only(results).verdict
    assert told.startswith("cannot be judged: ")
    assert why in told
    arms = Arm(results, "", "plain"), Arm(results, "", "good")
    for published in (5.0, -5.0, 0.0, math.nan):
        assert compared(*arms, published).verdict.startswith("cannot be judged: ")
    assert "cannot be judged" in tables.markdown(results)
    assert "cannot be judged" in tables.latex(results)


def test_a_rising_curve_is_one_that_would_leave_the_interval(study: Study) -> None:
    """Half of the effect's interval is allowed, at most 1 point, and falling always is."""
    for steady in (False, True):
        effect = only(study(steady=steady)).effect
        assert effect is not None
        assert (effect.half < 0.01) == steady
        allowed = effect.half if steady else 0.01
        for rise, passes in ((0.9, True), (1.1, False), (-50.0, True)):
            curve = [*FLAT[:8], *(0.61 + rise * allowed for _ in range(2))]
            found = only(study(steady=steady, curve={"good": curve})).gates
            (gate,) = [g for g in found if (g.arm, g.name) == ("good", "flat curve")]
            assert gate.passed == passes


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
    many = SplitFacts(train_classes=600, validation_classes=30)
    runs = tuple(
        replace(each, result=replace(each.result, split=many))
        for each in results.runs
        if each.result
    )
    assert "tuned on 30 of 63 validation classes" in only(replace(results, runs=runs)).verdict


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
def test_verdicts_compare_intervals_not_signs(study: Study, published: float, word: str) -> None:
    results = study()
    found = compared(Arm(results, "", "plain"), Arm(results, "", "good"), published)
    assert found.verdict == word
    down = compared(Arm(results, "", "good"), Arm(results, "", "plain"), -published)
    assert down.verdict == ("worse" if word == "better" else word)


def test_no_difference_says_what_would_have_been_seen(study: Study) -> None:
    results = study(level={"good": 0.605})
    for published in (3.0, 0.0, math.nan):
        found = compared(Arm(results, "", "plain"), Arm(results, "", "good"), published)
        assert found.effect is not None
        seen = f"{100 * found.effect.detectable:.1f} points could have been seen"
        assert found.verdict == f"not told apart ({seen})"


def test_a_metric_that_is_not_known_by_class_cannot_be_judged(study: Study) -> None:
    results = study()
    for each in results.runs:
        assert each.result is not None
        for row in each.result.scores.values():
            row.metrics["nmi"] = row.metrics["recall@1"]
    found = compared(Arm(results, "", "plain"), Arm(results, "", "good"), 5.0, metric="nmi")
    assert found.effect is not None
    assert found.effect.low < 0.05 < found.effect.high
    assert "NMI is not known class by class" in found.verdict


def test_intervals_of_several_methods_hold_together(study: Study) -> None:
    factors = {"method": {"plain": {}, "good": {"lr": 0.1}, "third": {"lr": 0.2}}}
    widths = {}
    for reference, pairs in (("", 3), ("good", 2)):
        plan = {"factors": factors} | ({"reference": reference} if reference else {})
        results = study(plan=plan, seeds=3)
        found = comparisons(results)
        assert [each.against for each in found] == ["good", "good"]
        alone = compared(Arm(results, "", "good"), Arm(results, "", "plain"))
        each = next(each for each in found if each.arm == "plain")
        assert each.effect is not None
        assert alone.effect is not None
        widths[pairs] = each.effect.half / alone.effect.half
    assert 1 < widths[2] < widths[3]


def test_the_tables_say_what_passed_in_words(study: Study) -> None:
    verdicts, passed = tables.judged_tables(comparisons(study(trials={"good": 0})))
    assert verdicts.rows[0][:2] == ["plain", "good"]
    rows = {(row[0], row[1]): row[-1] for row in passed.rows}
    assert rows["good", "tuned"] == "no: not tuned"
    assert rows["plain", "tuned"] == "passed"
    assert rows["plain, good", "sample"] == "passed"
    assert len(passed.rows) == 9


def test_the_highest_is_called_best_only_where_others_are_judged_worse(study: Study) -> None:
    assert headline(study()).before.startswith("good is best of 2 by R@1")
    assert headline(study(seeds=1)).before.startswith("good has the highest R@1 of 2")


def test_a_reference_is_one_of_the_methods() -> None:
    with pytest.raises(ValueError, match="reference"):
        plans.make({"name": "s", "factors": {"loss": ["margin"]}, "reference": "triplet"})


def test_an_arm_is_the_network_of_another_at_another_layer(study: Study) -> None:
    told = {"plain at pooled": "plain", "good": "plain"}
    results = study(plan={"reference": told, "published": {"plain at pooled": 3.1}})
    assert results.methods() == ["plain", "good", "plain at pooled"]
    assert comparisons(results)[0].word == gates.UNJUDGED  # no run was judged there
    runs = []
    for each in results.runs:
        kept = each.per_class
        assert kept is not None
        higher = [value + 20 * 0.03 for value in kept.sums]
        rows = {"pooled": {"trained": higher, **kept.baselines}}
        runs.append(replace(each, per_class=replace(kept, layers=rows)))
    found = comparisons(replace(results, runs=tuple(runs)))
    assert [(each.arm, each.against) for each in found] == [*told.items()]
    assert found[0].effect is not None
    assert found[0].effect.value == pytest.approx(0.03)
    read = replace(results, runs=tuple(runs)).of("", "plain at pooled")[0].result
    assert read is not None
    assert (read.thirds, read.gain) == (None, None)  # those are of the run's own layer
    assert found[0].verdict == "smaller"  # the same 3 points in every class: no spread at all
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
    found = only(replace(results, runs=runs))
    assert (found.word != gates.UNJUDGED) == passed
    assert ("2.0 points below the trial it was tuned by" in found.verdict) != passed


def test_each_arm_can_have_a_reference_of_its_own(study: Study) -> None:
    factors = {"method": {"plain": {}, "good": {"lr": 0.1}, "third": {"lr": 0.2}}}
    told = {"good": "plain", "plain": "third"}
    results = study(plan={"factors": factors, "reference": told, "published": {"good": 4.9}})
    found = comparisons(results)
    assert [(each.arm, each.against, each.pairs) for each in found] == [
        ("good", "plain", 1),
        ("plain", "third", 1),
    ]
    assert found[0].verdict == "holds"
    assert math.isnan(found[1].published)
    assert found[0].effect == compared(Arm(results, "", "plain"), Arm(results, "", "good")).effect
    shared = {"good": "plain", "third": "plain"}
    found = comparisons(study(plan={"factors": factors, "reference": shared}))
    assert [each.pairs for each in found] == [2, 2]


@pytest.mark.parametrize(("difference", "share"), [(0.0, 0.05), (0.0237, POWER)])
def test_of_400_studies_as_many_get_a_verdict_as_was_stated(
    monkeypatch: pytest.MonkeyPatch, difference: float, share: float
) -> None:
    """Whole comparisons but for their files: the right word for a known effect as often as the
    detectable effect says, and without one hardly ever any."""
    rng, words, stated = np.random.default_rng(7), [], []
    monkeypatch.setattr(gates, "_flat", lambda arm, *rest: gates.Gate("", "", ""))
    monkeypatch.setattr(gates, "_tuned", lambda arm: gates.Gate("", "", ""))
    monkeypatch.setattr(gates, "_above", lambda arm, *rest: gates.Gate("", "", ""))
    plan = plans.make({"name": "s", "seeds": list(range(5)), "factors": {"loss": ["margin"]}})
    counts = np.random.default_rng(1).integers(20, 60, 100)
    plain = Results(plan, Path(), tuple(_run(seed, 0.5 * counts, counts) for seed in range(5)), ())
    for _ in range(400):
        by_seed, by_class = 0.01 * rng.normal(size=(5, 1)), 0.04 * rng.normal(size=100)
        rest = rng.normal(size=(5, 100)) * np.sqrt(0.3 / counts)
        sums = (0.5 + difference + by_seed + by_class + rest) * counts
        runs = tuple(_run(seed, each, counts) for seed, each in enumerate(sums))
        found = compared(Arm(plain, "", "margin"), Arm(replace(plain, runs=runs), "", "margin"))
        words.append(found.verdict)
        assert found.effect is not None
        stated.append(found.effect.detectable)
    assert np.mean(stated) == pytest.approx(0.0237, rel=0.03)
    right = sum(word == "better" for word in words)
    others = sum(word == "worse" for word in words)
    if difference:
        low, high = stats.binom.interval(0.95, 400, share)
        assert low <= right <= high
        assert others == 0
    else:
        assert right + others <= 0.07 * 400


def _run(seed: int, sums: np.ndarray, counts: np.ndarray) -> Run:
    per_class = PerClass("recall@1", list(range(100)), sums.tolist(), counts.tolist())
    cell = Cell("final", {"loss": "margin"}, {"seed": seed})
    return Run(cell, Path(), "done", per_class=per_class)


def test_a_study_file_can_say_what_was_published(study: Study) -> None:
    told = {"reference": "plain", "published": {"good": 4.9}}
    (found,) = comparisons(study(plan=told))
    assert (found.published, found.verdict) == (4.9, "holds")
    (found,) = comparisons(study(plan=told | {"published": {"good": -4.9}}))
    assert found.verdict == "opposite"
    (table, _) = tables.judged_tables([found])
    assert "published" in table.heads


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"published": {"margin": 1.0}}, "need the arm they are against"),
        ({"published": {"margn": 1.0}, "reference": "margin"}, "did you mean margin"),
        ({"published": {"margin": 1.0}, "reference": {"triplet": "margin"}}, "what margin is"),
        ({"reference": {"triplet": "margn"}}, "did you mean margin"),
        ({"reference": {"triplt": "margin"}}, "did you mean triplet"),
        ({"reference": {"triplet": "triplet"}}, "with itself"),
    ],
)
def test_published_effects_are_of_arms(values: dict[str, Any], told: str) -> None:
    factors = {"loss": ["margin", "triplet"]}
    with pytest.raises(ValueError, match=told):
        plans.make({"name": "s", "factors": factors} | values)


def test_an_effect_is_published_for_one_experiment() -> None:
    values = {
        "name": "s",
        "factors": {"loss": ["margin", "triplet"], "embedding_size": [8, 16]},
        "reference": "margin",
        "published": {"embedding_size 8: triplet": -2.0},
    }
    plan = plans.make(values)
    arms = [Arm(Results(plan, Path(), (), ()), f"embedding_size {n}", "triplet") for n in (8, 16)]
    assert gates._published(arms[0]) == -2.0
    assert math.isnan(gates._published(arms[1]))

"""Tables of few shots and open sets, from files of runs, by hand."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from unseen.core.html_templates import PageSection
from unseen.core.statistics import Interval
from unseen.evaluation.open_set import OpenSet, RejectionPoint
from unseen.evaluation.training_gain import Gain
from unseen.runs.few_shot_layers import LAST
from unseen.runs.few_shots import FILE, FewShots
from unseen.runs.open_set_of_run import FILE as OPEN_FILE
from unseen.studies.engine import local_storage
from unseen.studies.extra_results import extra_results, extra_tables, mean_gain
from unseen.studies.results import read
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

NAMES = ("unknown_auroc", "fpr_at_tpr@0.95", "dir_at_far@0.01", "dir_at_far@0.1")


def shots(number: int, gain: float) -> FewShots:
    some = {"recall@1": Interval(0.5, 0.4, 0.6)}
    added = {"recall@1": Gain(0.5, 0.5 + gain, gain - 0.02, gain + 0.02)}
    return FewShots(number, 10, 50, 30, 0, some, some, added, LAST)


def opened() -> OpenSet:
    scores = {name: Interval(0.1 * place, 0.0, 1.0) for place, name in enumerate(NAMES, start=1)}
    point = RejectionPoint(0.7, 0.2, 0.6, 0.81, 0.64)
    return OpenSet("half", 100, 50, 5, 50, 5, scores, [point], {"calibrated": point})


def test_tables_of_a_study(stub: ModuleType, tmp_path: Any) -> None:
    plan = stub.small_plan(factors={"loss": ["margin", "triplet"]})
    out = tmp_path / "study"
    RunFolder(out).write_text("study.toml", plan.to_toml())

    def instant(
        worker: Worker, planned: Any, values: Any, folder: RunFolder, callbacks: Any
    ) -> None:
        stub.instant(worker, planned, values, folder, callbacks)
        if planned.labels["loss"] == "margin":
            by_shots = {"5": shots(5, 0.1 + 0.02 * values["seed"]), "2": shots(2, 0.03)}
            folder.write_json(FILE, {"by_shots": by_shots})
            folder.write_json(OPEN_FILE, opened())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "_train", instant)
        Worker(plan, local_storage(out), out).work()
    results = read(out)
    (result,) = extra_results(results)
    assert (result.method, sorted(result.shots), len(result.open_sets)) == ("margin", ["2", "5"], 2)
    few, open_sets = extra_tables([result], "recall@1")
    assert [row[:4] for row in few.rows] == [
        ["margin", "2", "50.0", "53.0"],
        ["margin", "5", "50.0", "61.0"],
    ]
    assert few.rows[1][4].startswith("+11.0 (")
    assert open_sets.rows == [["margin", "10.0", "20.0", "30.0", "40.0", "81.0", "64.0", "72.0"]]
    html = PageSection.of("studies/tables", "Few shots", tables=[few, open_sets], figures=[]).html
    assert "<td>72.0</td>" in html
    without = [replace(result, shots={}, open_sets=[])]
    assert extra_tables(without, "recall@1") == []


def test_the_gain_of_one_run_keeps_its_interval() -> None:
    one = Gain(0.4, 0.5, 0.07, 0.13)
    assert mean_gain([one]) == Interval(pytest.approx(0.1), 0.07, 0.13)
    two = mean_gain([one, Gain(0.4, 0.52, 0.1, 0.14)])
    assert two.value == pytest.approx(0.11)
    half = 12.7062 * 0.01  # t with one degree of freedom, times the error of the mean
    assert two.high - two.value == pytest.approx(half, rel=1e-4)

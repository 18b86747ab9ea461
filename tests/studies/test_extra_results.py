"""Tables of few shots and open sets, from files of runs, by hand."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from unseen.core.html_templates import PageSection
from unseen.core.statistics import Interval
from unseen.evaluation.open_set import OpenSet, RejectionPoint
from unseen.evaluation.training_gain import Gain
from unseen.runs.few_shots import FILE, LAST, FewShots
from unseen.runs.open_set_of_run import FILE as OPEN_FILE
from unseen.studies.engine import local_storage
from unseen.studies.extra_results import extra_tables
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
    few, open_sets = extra_tables(results)
    half = 12.7062 * 1  # t with one degree of freedom, times the error of the mean
    assert few.rows == [
        ["margin, shots 2", "50.0 ± 0.0", "53.0 ± 0.0", "+3.0 ± 0.0"],
        ["margin, shots 5", "50.0 ± 0.0", f"61.0 ± {half:.1f}", f"+11.0 ± {half:.1f}"],
    ]
    assert [cell.partition(" ")[0] for cell in open_sets.rows[0]] == [
        *("margin", "10.0", "20.0", "30.0", "40.0", "81.0", "64.0", "72.0")
    ]
    html = PageSection.of("studies/tables", "Few shots", tables=[few, open_sets], figures=[]).html
    assert "<td>72.0 ± 0.0</td>" in html
    assert extra_tables(replace(results, runs=results.runs[2:])) == [], "triplet has none"
    one = extra_tables(replace(results, runs=results.runs[:1]))[0]
    assert one.rows[1] == ["margin, shots 5", "50.0", "60.0", "+10.0"], "one run has no spread"

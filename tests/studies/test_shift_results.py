"""Curves over the shift: points by hand, the area under them, baselines beside, and the page."""

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from unseen.studies.engine import local_storage
from unseen.studies.results import Results, read
from unseen.studies.shift_results import area, shift_curves, shift_figures, shift_tables
from unseen.studies.study_report import write
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

DISTANCES = {1: 10.0, 4: 30.0, 9: 100.0}


@pytest.fixture(scope="module")
def finished(stub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs whose score falls with the step, by a tenth each."""

    def instant(
        worker: Worker, planned: Any, values: Any, folder: RunFolder, callbacks: Any
    ) -> None:
        stub.instant(worker, planned, values, folder, callbacks)
        step = values["shift"]["step"]
        result = folder.read_json("result.json")
        result["split"] = {"shift": DISTANCES[step], "shift_step": step}
        fall = 0.1 * list(DISTANCES).index(step)
        result["scores"]["trained"]["metrics"]["recall@1"]["value"] -= fall
        folder.write_json("result.json", result)
        sums = folder.read_json("per_class.json")
        sums["sums"] = [value - 10 * fall for value in sums["sums"]]
        folder.write_json("per_class.json", sums)

    factors = {"loss": ["margin", "triplet"], "shift.step": list(DISTANCES)}
    plan = stub.small_plan(factors=factors, config={"protocol": "shift"})
    out = tmp_path_factory.mktemp("shift") / "stages"
    RunFolder(out).write_text("study.toml", plan.to_toml())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "_train", instant)
        Worker(plan, local_storage(out), out).work()
    return read(out)


def test_area_is_the_mean_over_the_distances() -> None:
    assert area([0, 1, 4], [1.0, 1.0, 1.0]) == pytest.approx(1)
    assert area([4, 0, 1], [0.0, 1.0, 1.0]) == pytest.approx((1 + 3 / 2) / 4)
    assert math.isnan(area([2, 2], [1.0, 0.0]))
    x, y = np.array([0.0, 2, 3, 7]), np.array([0.9, 0.5, 0.6, 0.1])
    slow = sum((y[i] + y[i + 1]) / 2 * (x[i + 1] - x[i]) for i in range(3)) / 7
    assert area(x.tolist(), y.tolist()) == pytest.approx(slow)


def test_curves_points_and_baselines(finished: Results) -> None:
    curves = {(curve.method, curve.row): curve for curve in shift_curves(finished)}
    assert set(curves) == {("margin", "trained"), ("triplet", "trained"), ("untrained",) * 2}
    margin = curves["margin", "trained"]
    assert [point.distance for point in margin.points] == [10, 30, 100]
    runs = [run for run in finished.runs if run.planned.labels["loss"] == "margin"]
    for point in margin.points:
        own = [r for r in runs if r.planned.values["shift"]["step"] == point.step]
        assert point.score.value == pytest.approx(
            np.mean([r.score("recall@1") for r in own]), abs=1e-6
        )
        assert point.score.low < point.score.value < point.score.high
        assert point.gain is not None
        assert point.gain.value == pytest.approx(point.score.value - 0.105, abs=1e-6)
    assert margin.change == pytest.approx(-0.2, abs=1e-6)
    by_seed = []
    for seed in (0, 1):
        own = {r.planned.values["shift"]["step"]: r for r in runs if r.replicate[0] == seed}
        by_seed.append(area([10, 30, 100], [own[s].score("recall@1") for s in DISTANCES]))
    assert margin.area.mean == pytest.approx(np.mean(by_seed))
    flat = curves["untrained", "untrained"]
    assert flat.area.mean == pytest.approx(0.105)
    assert flat.change == pytest.approx(0, abs=1e-9)


def test_table_and_figure(finished: Results) -> None:
    (table,) = shift_tables(finished)
    assert [row[0] for row in table.rows] == ["margin", "triplet", "untrained network"]
    assert table.rows[0][-1] == "-20.0"
    (drawn,) = shift_figures(finished)
    labels = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert labels[0].startswith("margin (")


@pytest.mark.slow
def test_the_page(finished: Results) -> None:
    page = write(finished).read_text()
    assert "Distribution shift" in page
    assert (finished.out / "report" / "figures" / "shift.png").exists()


def test_other_studies_have_no_curves(stub: ModuleType, tmp_path: Path) -> None:
    plan = stub.small_plan()
    RunFolder(tmp_path).write_text("study.toml", plan.to_toml())
    assert shift_curves(read(tmp_path)) == []
    assert shift_figures(read(tmp_path)) == []

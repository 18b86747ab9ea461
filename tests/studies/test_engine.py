"""Cells run once each, whatever dies; a study that was stopped ends with the same table."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.faults.injection import cut, flip, lose
from tests.faults.stores import ImageStudy
from tests.faults.subjects import CHANGES, draw_images
from unseen.studies import engine, study_tables
from unseen.studies.engine import Study, collect, local_storage, stored_plan
from unseen.studies.results import Run, read
from unseen.studies.worker import Worker
from unseen.training.run_folder import RunFolder

Scenario = Callable[..., dict[str, Any]]


def worked(stub: ModuleType, out: Path, **more: Any) -> Worker:
    """A study run in this process, to its end."""
    plan = stub.small_plan(**more)
    RunFolder(out).write_text("study.toml", plan.to_toml())
    worker = Worker(plan, local_storage(out), out)
    worker.work()
    return worker


def written(run: Run) -> int:
    return (run.folder / "weights.safetensors").stat().st_mtime_ns


def test_every_cell_runs_once(instant: ModuleType, tmp_path: Path) -> None:
    worker = worked(instant, tmp_path, seeds=[0])
    trials = worker.queues[""].study.get_trials()
    assert len(trials) == 6
    assert {trial.user_attrs["planned"] for trial in trials} == set(worker.planned_runs)
    assert len(list(tmp_path.glob("runs/*/state.json"))) == 6
    assert Worker(worker.plan, local_storage(tmp_path), tmp_path).resolve()
    assert len(worker.queues[""].study.get_trials()) == 6


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_and_started_again(
    instant: ModuleType, scenario: Scenario, tmp_path: Path, times: int
) -> None:
    message = scenario("interrupted", str(tmp_path / "killed"), str(times))
    assert message["codes"] == [0, 0], message["errors"]
    assert message["repeated"] == 0
    assert (
        message["begun"] > 6 * (2 + times // 5) or times < 10
    )  # killed in the middle, begun again
    worked(instant, tmp_path / "whole", seeds=list(range(2 + times // 5)))
    tables_made = [study_tables.markdown(read(tmp_path / name)) for name in ("killed", "whole")]
    assert tables_made[0] == tables_made[1]


DRIVER = """
import time
import uuid
from unseen.studies import engine

def work():
    engine._end_with_parent()

if __name__ == "__main__":
    process = engine._context().Process(target=work)
    process.start()
    print(process.pid, flush=True)
    time.sleep(600)
"""


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    words = [sys.executable, str(tmp_path / "driver.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        worker = int(driver.stdout.readline())
        assert is_there(worker)
        driver.kill()
    for _ in range(600):
        if not is_there(worker):
            return
        time.sleep(0.1)
    raise AssertionError("the worker goes on without its driver")


def test_a_study_on_postgresql(instant: ModuleType, storage: str, tmp_path: Path) -> None:
    plan = instant.small_plan(seeds=[0])
    for out in ("here", "there"):
        RunFolder(tmp_path / out).write_text("study.toml", plan.to_toml())
        Worker(plan, storage, tmp_path / out).work()  # the second finds nothing left to do
    assert len(list(tmp_path.glob("here/runs/*/state.json"))) == 6
    assert not list(tmp_path.glob("there/runs/*/state.json"))
    worked(instant, tmp_path / "file", seeds=[0])
    made = [study_tables.markdown(read(tmp_path / name)) for name in ("here", "file")]
    assert made[0] == made[1]


@pytest.mark.slow
def test_three_workers_on_postgresql_of_which_one_dies(
    instant: ModuleType, scenario: Scenario, storage: str, tmp_path: Path
) -> None:
    message = scenario("fleet", str(tmp_path / "fleet"), storage)
    assert message["codes"] == [0, 0], message["errors"]
    assert len(message["lost"]) == 1
    repeated = [key for key in set(message["begun"]) if message["begun"].count(key) > 1]
    assert repeated == message["lost"]  # only the dead worker's cell was begun twice
    assert message["fetched"] == 12
    worked(instant, tmp_path / "alone")
    assert message["table"] == study_tables.markdown(read(tmp_path / "alone"))


@pytest.mark.slow
def test_killed_ten_times_on_postgresql(
    instant: ModuleType, scenario: Scenario, storage: str, tmp_path: Path
) -> None:
    message = scenario("interrupted", str(tmp_path / "killed"), "10", storage)
    assert message["codes"] == [0, 0], message["errors"]
    assert message["repeated"] == 0
    worked(instant, tmp_path / "whole", seeds=[0, 1, 2, 3])
    tables_made = [study_tables.markdown(read(tmp_path / name)) for name in ("killed", "whole")]
    assert tables_made[0] == tables_made[1]


def test_a_failed_cell_is_retried_and_then_shown(
    stub: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[str] = []

    def failing(worker: Worker, planned: Any, *rest: Any) -> None:
        if planned.labels["loss"] == "triplet" and len(tried) < 9:
            tried.append(planned.key)
            raise FloatingPointError("the loss became nan")
        stub.instant(worker, planned, *rest)

    monkeypatch.setattr(Worker, "_train", failing)
    worker = worked(stub, tmp_path, seeds=[0], retries=1)
    assert len(tried) == 4  # two cells, each tried twice
    states = {run.planned.labels["loss"]: run for run in read(tmp_path).runs}
    assert states["triplet"].state == "failed"
    assert states["triplet"].error == "FloatingPointError: the loss became nan"
    text = study_tables.markdown(read(tmp_path))
    assert "| triplet | failed |" in text
    tried.extend(["enough"] * 9)
    worker.queues[""].study.set_user_attr("plan", worker.plan.to_toml())
    elsewhere = tmp_path / "elsewhere"
    assert collect("small", local_storage(tmp_path), elsewhere) == 6
    worker.retry()
    worker.work()
    assert all(run.state == "done" for run in read(tmp_path).runs)
    assert collect("small", local_storage(tmp_path), elsewhere) == 2
    assert study_tables.markdown(read(elsewhere)) == study_tables.markdown(read(tmp_path))


def test_a_worker_that_is_alone_waits_for_nobody(
    instant: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("unseen.studies.worker.time.sleep", pytest.fail)
    worked(instant, tmp_path, seeds=[0])


def test_a_finished_run_that_was_not_reported_is_not_repeated(
    instant: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = instant.small_plan(seeds=[0])
    worker = Worker(plan, local_storage(tmp_path), tmp_path)
    worker.resolve()
    queue = worker.queues[""]
    trial = queue.claim()
    assert trial is not None
    planned = worker.planned_runs[trial.user_attrs["planned"]]
    folder = RunFolder(tmp_path / "runs" / planned.name)
    worker._outcome(queue, trial, planned, folder)
    worker._note_end(folder, "done", 0.0)  # and now this worker is killed
    monkeypatch.setattr("unseen.studies.run_queue.has_ended", lambda worker: True)
    began: list[str] = []
    stand_in = Worker._train

    def counted(worker: Worker, planned: Any, *rest: Any) -> None:
        began.append(planned.key)
        stand_in(worker, planned, *rest)

    monkeypatch.setattr(Worker, "_train", counted)
    other = Worker(plan, local_storage(tmp_path), tmp_path)
    other.resolve()
    monkeypatch.setattr("unseen.studies.run_queue.has_ended", lambda worker: False)
    other.work()
    assert planned.key not in began
    assert len(began) == 5


def test_a_changed_plan_runs_only_what_is_new(instant: ModuleType, tmp_path: Path) -> None:
    worked(instant, tmp_path, seeds=[0])
    factors = {"loss": ["margin", "contrastive", "n_pair"], "embedding_size": [8, 16]}
    worker = worked(instant, tmp_path, seeds=[0], factors=factors)
    assert len(worker.queues[""].study.get_trials()) == 6 + 2
    assert {run.planned.labels["loss"] for run in read(tmp_path).runs} == set(factors["loss"])


def test_runs_are_collected_from_the_storage(instant: ModuleType, tmp_path: Path) -> None:
    worker = worked(instant, tmp_path / "there", seeds=[0])
    storage = local_storage(tmp_path / "there")
    with pytest.raises(ValueError, match="not made by"):
        stored_plan("small", storage)
    worker.queues[""].study.set_user_attr("plan", worker.plan.to_toml())
    assert collect("small", storage, tmp_path / "here") == 6
    assert collect("small", storage, tmp_path / "here") == 0
    both = [study_tables.markdown(read(tmp_path / place)) for place in ("there", "here")]
    assert both[0] == both[1]
    with pytest.raises(ValueError, match="holds no study 'other'"):
        stored_plan("other", storage)


def closed(out: Path) -> Path:
    """The database as a process leaves it that comes to its end."""
    connection = sqlite3.connect(out / "study.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return out / "study.db"


def test_a_damaged_database_is_named_and_made_again_from_the_runs(
    instant: ModuleType, tmp_path: Path
) -> None:
    worked(instant, tmp_path, seeds=[0])
    whole = study_tables.markdown(read(tmp_path))
    database = closed(tmp_path)
    cut(database)
    with pytest.raises(ValueError, match=r"study\.db is damaged .*delete it"):
        worked(instant, tmp_path, seeds=[0])
    database.unlink()
    worked(instant, tmp_path, seeds=[0])
    assert study_tables.markdown(read(tmp_path)) == whole


@pytest.mark.parametrize("harm", [flip, lose])
def test_a_damaged_result_is_named_and_restored_from_the_database(
    instant: ModuleType, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    worker = worked(instant, tmp_path, seeds=[0])
    whole = study_tables.markdown(read(tmp_path))
    damaged = sorted(tmp_path.glob("runs/*/result.json"))[2]
    harm(damaged)
    with pytest.raises(ValueError, match=r"result\.json is (damaged|missing).*unseen study run"):
        read(tmp_path)
    worker.queues[""].study.set_user_attr("plan", worker.plan.to_toml())
    assert collect("small", local_storage(tmp_path), tmp_path, only_lost=True) == 1
    assert study_tables.markdown(read(tmp_path)) == whole


def test_the_engine_starts_worker_processes_and_real_runs(
    tmp_path: Path, stub: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    config = {
        "data": {"name": "glyphs", "max_classes": 24, "size": 16},
        "batch_size": 16,
        "epochs": 1,
        "sampler": {"name": "m_per_class", "steps": 2},
        "metrics": ["recall@1"],
    }
    plan = stub.small_plan(config=config, seeds=[0], factors={"loss": ["margin", "triplet"]})
    heard: list[int] = []
    results = Study(plan).run(tmp_path, jobs=1, progress=lambda now: heard.append(now.ended))
    assert [run.state for run in results.runs] == ["done", "done"]
    assert heard[-1] == 2
    assert all(len(run.per_class.classes) == 12 for run in results.runs if run.per_class)
    recall = results.runs[0].score("recall@1")
    counts = results.runs[0].per_class
    assert counts is not None
    assert sum(counts.sums) / sum(counts.counts) == pytest.approx(recall, abs=1e-5)
    assert set(counts.baselines) == {"untrained", "principal"}
    for row, sums in counts.baselines.items():
        known = results.runs[0].score("recall@1", row)
        assert sum(sums) / sum(counts.counts) == pytest.approx(known, abs=1e-5)
    assert results.runs[0].selection is not None
    assert results.runs[0].selection.classes == 4
    weights = [written(run) for run in results.runs]
    again = Study(plan).run(tmp_path, jobs=1)
    assert study_tables.markdown(again) == study_tables.markdown(results)
    assert [written(run) for run in again.runs] == weights


def test_runs_of_a_study_see_the_same_images(tmp_path: Path) -> None:
    study = ImageStudy()
    draw_images(tmp_path)
    study.make(tmp_path, losses=["margin"])
    study.make(tmp_path, losses=["margin"])
    CHANGES["replaced"](tmp_path / "photos")
    with pytest.raises(ValueError, match=r"changed since it began: 1 of other content .*03/1.bmp"):
        study.make(tmp_path)
    study.make(tmp_path, losses=["margin"])  # has come to its end: there is nothing to train


def test_workers_start_however_long_the_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has at most 107 letters."""
    for folder, method in (("/tmp", "forkserver"), ("/tmp/" + 100 * "x", "spawn")):
        monkeypatch.setattr("tempfile.gettempdir", lambda folder=folder: folder)
        assert engine._context().get_start_method() == method

"""A storage is a stranger's: nothing it says leaves the study's folder, and nothing is believed
that a run cannot have written."""

import json
import shutil
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unseen.studies import study_file as plans
from unseen.studies.engine import Study, collect, local_storage, study_progress
from unseen.studies.results import read
from unseen.studies.run_queue import has_ended, worker_name
from unseen.studies.study_file import RESERVED
from unseen.studies.trial_notes import MOST_BYTES, NAMES, checked
from unseen.studies.worker import Worker
from unseen.training.event_log import summed

PLANNED = json.dumps(
    {"key": "another", "stage": "final", "labels": {}, "parameters": {}, "seed": 0, "fold": None}
)
MANIFEST = '{"version": 2}'
STATE = json.dumps({"state": "done", "seconds": 1.0, "error": ""})


@pytest.fixture(scope="module")
def database(stub: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of six runs with its plan, as a fleet leaves it."""
    out = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "_train", stub.instant)
        finished(stub.small_plan(seeds=[0]), out)
    with sqlite3.connect(out / "study.db") as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return out / "study.db"


@pytest.fixture
def storage(database: Path, tmp_path: Path) -> str:
    """A copy that may be damaged."""
    shutil.copy(database, tmp_path / "study.db")
    return local_storage(tmp_path)


def finished(plan: plans.Plan, out: Path) -> str:
    worker = Worker(plan, local_storage(out), out)
    worker.queues[""].study.set_user_attr("plan", plan.to_toml())
    worker.work()
    return local_storage(out)


def rewrite(storage: str, key: str, change: Any) -> None:
    """Edits an attribute of every trial, as anybody with the database can."""
    with sqlite3.connect(storage.removeprefix("sqlite:///")) as database:
        rows = database.execute(
            "select trial_user_attribute_id, value_json from trial_user_attributes where key = ?",
            (key,),
        ).fetchall()
        assert rows
        for number, text in rows:
            database.execute(
                "update trial_user_attributes set value_json = ? where trial_user_attribute_id = ?",
                (json.dumps(change(json.loads(text))), number),
            )
    database.close()


def files_below(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_the_small_files_are_collected(storage: str, tmp_path: Path) -> None:
    out = tmp_path / "collected"
    assert collect("small", storage, out) == 6
    assert {Path(name).name for name in files_below(out)} <= {
        *NAMES,
        "study.toml",
        "checksums.json",
    }
    assert all(run.state == "done" for run in read(out).runs)
    assert collect("small", storage, out) == 0  # all are there


@pytest.mark.parametrize("kind", ["absolute", "upwards", "weights", "below"])
def test_only_known_plain_names_are_written(storage: str, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim.txt"
    name = {
        "absolute": str(victim),
        "upwards": "../../../victim.txt",
        "weights": "weights.safetensors",
        "below": "sub/state.json",
    }[kind]
    rewrite(storage, "files", lambda files: files | {name: "owned"})
    with pytest.raises(ValueError, match="no run leaves"):
        collect("small", storage, tmp_path / "collected")
    assert not victim.exists()
    assert files_below(tmp_path / "collected") == {"study.toml", "checksums.json"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("result.json", "{", "result.json"),
        ("result.json", "[]", "result.json"),
        ("result.json", '{"scores": {"trained": {"metrics": {"nmi": 3}}}}', "scores.trained"),
        (
            "per_class.json",
            '{"metric": "nmi", "classes": "x", "sums": [], "counts": []}',
            "classes",
        ),
        ("selection.json", '{"on": "validation", "value": "much"}', "selection.json is damaged"),
        ("state.json", '{"state": "owned", "seconds": 1, "error": ""}', "state"),
        ("planned.json", PLANNED, "of the run 'another'"),
        ("events.jsonl", summed({"event": "start"}), "events other than epochs"),
        (
            "events.jsonl",
            summed({"event": "epoch"}),
            "epoch.epoch: Field required",
        ),
        ("config.toml", "epochs = 0", "epochs"),
        ("manifest.json", " " * (MOST_BYTES + 1), "larger than"),
    ],
)
def test_files_have_the_shape_that_runs_give_them(name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked({"state.json": STATE, name: text}, "key")


def test_a_stored_config_names_no_part_that_the_study_does_not() -> None:
    """It would be imported, and run, to be checked."""
    config = 'metrics = ["./tests/stranger.py:Mine@2"]\n[loss]\nname = "margin"\n'
    with pytest.raises(ValueError, match=r"config\.toml .* names \./tests/stranger\.py:Mine"):
        checked({"state.json": STATE, "config.toml": config}, "key", components=["./other.py:Mine"])


def test_a_state_is_written_last_and_always() -> None:
    assert (
        list(checked({"state.json": STATE, "manifest.json": MANIFEST}, "key"))[-1] == "state.json"
    )
    with pytest.raises(ValueError, match=r"without state\.json"):
        checked({"manifest.json": MANIFEST}, "key")


@pytest.mark.parametrize(
    ("key", "value"),
    [("files", ["x"]), ("attempt", "2"), ("attempt", -1), ("planned", ["x"]), ("worker", 3)],
)
def test_attributes_of_another_type_are_named(
    storage: str, tmp_path: Path, key: str, value: Any
) -> None:
    rewrite(storage, key, lambda old: value)
    with pytest.raises(
        ValueError, match=f"trial 0 in the storage is not one of `unseen study`: {key}"
    ):
        collect("small", storage, tmp_path / "collected")


def test_errors_and_titles_cannot_command_a_terminal(instant: ModuleType, tmp_path: Path) -> None:
    plan = instant.small_plan(seeds=[0], retries=0)
    worker = Worker(plan, local_storage(tmp_path), tmp_path)
    worker.resolve()
    trial = worker.queues[""].claim()
    assert trial is not None
    worker.queues[""].fail(trial, "\x1b]0;owned\x07\nsecond line" + "x" * 10**5)
    ((_, error),) = study_progress(worker).failed.items()
    assert error.startswith("]0;owned second line")
    assert len(error) <= 2000


def test_a_worker_of_another_shape_is_not_gone() -> None:
    machine = worker_name().rpartition(":")[0]
    assert not has_ended(worker_name())
    for pid in ("-1", "0", "x", "9" * 40, ""):
        assert not has_ended(f"{machine}:{pid}")


def test_only_what_was_searched_can_have_been_found(instant: ModuleType, tmp_path: Path) -> None:
    parameters = [{"key": "lr", "low": 0.1, "high": 0.2}]
    search = {"mode": "tpe", "trials": 2, "parameters": parameters, "prune": False}
    plan = instant.small_plan(seeds=[0], search=search, factors={"loss": ["margin"]})
    storage = finished(plan, tmp_path)
    assert Worker(plan, storage, tmp_path).resolve()
    for forged in ({"lr": 5.0}, {"weights": "/etc/passwd"}, {"lr": "0.15"}):
        rewrite(storage, "parameters", lambda old, forged=forged: json.dumps(forged))
        with pytest.raises(ValueError, match="cannot have found"):
            Worker(plan, storage, tmp_path).resolve()


def test_every_name_a_study_uses_is_refused_as_a_factor(
    instant: ModuleType, tmp_path: Path
) -> None:
    """A factor called `cell` hid the cell of its trials, and the study never ended."""
    plan = instant.small_plan(seeds=[0])
    worker = Worker(plan, local_storage(tmp_path), tmp_path)
    (tmp_path / "study.toml").write_text(plan.to_toml())
    worker.work()
    trials = worker.queues[""].study.get_trials()
    used = {key for trial in trials for key in trial.user_attrs}
    used |= {key for row in read(tmp_path).rows() for key in row}
    metrics = set(read(tmp_path).metrics())
    assert used - set(plan.factors) - metrics <= {*RESERVED}
    for name in (*RESERVED, "recall@1"):
        factors = {name: {"a": {"lr": 0.1}, "b": {"lr": 0.2}}}
        with pytest.raises(ValueError, match=f"cannot be called {name}"):
            plans.make({"name": "x", "factors": factors})


def test_a_factor_is_not_tuned_as_well() -> None:
    search = {"mode": "coordinate", "parameters": [{"key": "lr", "values": [0.1, 0.2]}]}
    with pytest.raises(ValueError, match="lr is a factor and tuned"):
        plans.make({"name": "x", "factors": {"lr": [0.1, 0.3]}, "search": search})


def test_a_plan_that_is_no_text_is_refused(storage: str, tmp_path: Path) -> None:
    with sqlite3.connect(storage.removeprefix("sqlite:///")) as database:
        database.execute("update study_user_attributes set value_json = '3' where key = 'plan'")
    database.close()
    with pytest.raises(ValueError, match="not made by `unseen study run`"):
        collect("small", storage, tmp_path / "collected")


def test_values_listed_twice_do_not_keep_a_study_waiting(
    instant: ModuleType, tmp_path: Path
) -> None:
    search = {"mode": "coordinate", "parameters": [{"key": "lr", "values": [0.1, 0.1]}]}
    plan = instant.small_plan(seeds=[0], search=search, factors={"loss": ["margin"]})
    Study(plan)
    finished(plan, tmp_path)
    assert Worker(plan, local_storage(tmp_path), tmp_path).resolve()

"""Runs that take no time: a stand-in for training, and worker processes that are killed.

As a script: `python stub.py SCENARIO OUT [STORAGE]`; prints what happened as JSON. Workers are
forked from one process, so that torch is imported once.
"""

import hashlib
import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from unseen.evaluation.evaluate import Score
from unseen.runs.prepare import Callbacks
from unseen.studies import run_queue, study_tables
from unseen.studies import study_file as plans
from unseen.studies.engine import collect, local_storage
from unseen.studies.results import read
from unseen.studies.run_files import PerClass
from unseen.studies.study_file import Plan, PlannedRun, Values
from unseen.studies.worker import Worker
from unseen.training.events import Epoch
from unseen.training.result import Result, Row, write_result
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import Selection, write_selection

CLASSES = 30


def small_plan(**more: Any) -> Plan:
    values: Values = {
        "name": "small",
        "seeds": [0, 1],
        "factors": {"loss": ["margin", "triplet", "contrastive"], "embedding_size": [8, 16]},
    }
    return plans.make(values | more)


def draw(*words: Any) -> float:
    """A number from 0 to 1 that depends on the words alone."""
    return int(hashlib.sha256(repr(words).encode()).hexdigest()[:8], 16) / 2**32


def instant(
    worker: Worker, planned: PlannedRun, values: Values, folder: RunFolder, callbacks: Callbacks
) -> None:
    """Leaves what a run leaves; margin is best, contrastive a little worse, triplet bad."""
    loss = planned.labels.get("loss", "")
    skill = {"margin": 0.6, "contrastive": 0.57, "triplet": 0.3}.get(loss, 0.5)
    skill += 0.1 * values.get("lr", 0.0) + 0.02 * draw(loss, values["seed"])
    for epoch in range(3):
        value = skill * (epoch + 1) / 3
        message = Epoch(epoch, 4 * epoch + 4, {"loss": 0.5}, 0.1, 1.0, 90.0, {"recall@1": value})
        callbacks.log(message)
    selection = Selection(values.get("select", "validation"), "recall@1", 2, skill, classes=8)
    write_selection(folder, selection)
    if planned.stage == "search":
        return
    sums = [10 * skill + draw(loss, values["seed"], c) for c in range(CLASSES)]
    counts = [10] * CLASSES
    per_class = PerClass("recall@1", list(range(CLASSES)), sums, counts, baselines={}, layers={})
    folder.write_json("per_class.json", per_class)
    rows = {"trained": sum(sums) / sum(counts), "untrained": 0.1 + 0.01 * values["seed"]}
    scores = {row: Row({"recall@1": Score(v), "nmi": Score(v / 2)}) for row, v in rows.items()}
    write_result(folder, Result(scores, selection=selection))


def logged(log: Path, seconds: float) -> Any:
    """The instant run, made slower, with a line in a log when it begins."""

    def run(
        worker: Worker, planned: PlannedRun, values: Values, folder: RunFolder, callbacks: Callbacks
    ) -> None:
        with log.open("a") as stream:
            stream.write(f"{planned.key}\n")
        time.sleep(seconds)
        instant(worker, planned, values, folder, callbacks)

    return run


def fork(plan: Plan, storage: str, out: Path, grace: int = 60) -> int:
    """A worker process; its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        Worker(plan, storage, out, grace).work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def finished(out: Path) -> list[str]:
    states = [json.loads(f.read_text()) for f in out.glob("runs/*/planned.json")]
    return [s["key"] for s in states if _done(out, s["key"])]


def _done(out: Path, key: str) -> bool:
    (folder,) = out.glob(f"runs/*-{key[:8]}")
    return (folder / "state.json").exists()


def begun(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def interrupted(out: Path, times: int, storage: str | None = None) -> dict[str, Any]:
    """Two workers are killed so many times, each at a random moment after a run began; then they
    may finish."""
    plan, log = small_plan(seeds=list(range(2 + times // 5))), out / "log"
    out.mkdir()
    RunFolder(out).write_text("study.toml", plan.to_toml())
    Worker._train = logged(log, 0.12)  # type: ignore[method-assign]
    chance, repeated = random.Random(0), 0
    for _ in range(times):
        ended, before = finished(out), len(begun(log))
        pids = [fork(plan, storage or local_storage(out), out) for _ in range(2)]
        while len(begun(log)) == before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        repeated += len(set(begun(log)[before:]) & set(ended))
    ended, before = finished(out), len(begun(log))
    pids = [fork(plan, storage or local_storage(out), out) for _ in range(2)]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    repeated += len(set(begun(log)[before:]) & set(ended))
    return {"codes": codes, "repeated": repeated, "begun": len(begun(log))}


def fleet(out: Path, storage: str) -> dict[str, Any]:
    """Three machines without a common disk; one is killed in a run and is only known by its
    silence. Then the runs of all are collected."""
    plan = small_plan()
    out.mkdir()
    run_queue.has_ended = lambda worker: False  # as on another machine
    logs = [out / f"log{i}" for i in range(3)]
    pids = []
    for i, log in enumerate(logs):
        Worker._train = logged(log, 60.0 if i == 0 else 0.3)  # type: ignore[method-assign]
        pids.append(fork(plan, storage, out / f"machine{i}", grace=4))
    while not begun(logs[0]):
        time.sleep(0.05)
    os.kill(pids[0], signal.SIGKILL)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    runs = [key for log in logs for key in begun(log)]
    lost = begun(logs[0])
    stored = run_queue.Queue(storage, plan.name)
    stored.study.set_user_attr("plan", plan.to_toml())
    fetched = collect(plan.name, storage, out / "all")
    return {
        "codes": codes[1:],
        "lost": lost,
        "begun": runs,
        "fetched": fetched,
        "table": study_tables.markdown(read(out / "all")),
    }


if __name__ == "__main__":
    for slow in ("alembic.command", "alembic.config", "alembic.migration", "sqlalchemy.orm"):
        importlib.import_module(slow)  # Optuna imports them late: once here, not in every fork
    scenario, place, *rest = sys.argv[1:]
    if scenario == "fleet":
        message = fleet(Path(place), rest[0])
    else:
        message = interrupted(Path(place), int(rest[0]), *rest[1:])
    print(json.dumps(message))

"""Runs a study: in worker processes on this machine, and on any others that share its storage.

    study = Study(plan.load(Path("losses.toml")))
    results = study.run(Path("studies/losses"))        # stop it, call it again: it goes on
    results.table()                                    # see results.py

Files    out/study.toml, out/study.db (Optuna, SQLite), out/runs/<cell>/ (run folders)
Fleet    study.run(out, storage="postgresql://...") here; on other machines
         work("losses", "postgresql://...", out); `collect` brings the small files of their runs
"""

import json
import multiprocessing
import os
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import optuna

from unseen import config as configs
from unseen import outside
from unseen.data.pictures.stored import CACHE_VARIABLE, cache_folder
from unseen.studies import plan as plans
from unseen.studies.plan import Plan
from unseen.studies.queue import GRACE, Queue, study_names
from unseen.studies.results import Results, read
from unseen.studies.run_files import STATE, State
from unseen.studies.search import search_cells
from unseen.studies.stored_notes import checked, note
from unseen.studies.worker import Worker
from unseen.training import stored
from unseen.training.run_folder import RunFolder

POLL_SECONDS = 1.0
LOOKS_APART = 12  # times what a look takes: looking is to cost the runs little
LONGEST_SOCKET_FOLDER = 60  # letters; the socket's own name takes about 40 of 107
MOST_DEATHS = 3  # of workers in a row, without a run finished between


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands."""

    ended: int
    total: int
    running: tuple[str, ...]  # titles of cells
    failed: dict[str, str]  # title of a cell -> its last error


class Study:
    """A plan that can be run, again and again until it is done."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        for variant in plan.variants():
            for cell in search_cells(plan, variant):
                configs.make(cell.values)

    def run(
        self,
        out: Path,
        *,
        jobs: int | None = None,
        storage: str | None = None,
        grace: int = GRACE,
        retry: bool = False,
        tell: Callable[[StudyProgress], None] = lambda progress: None,
    ) -> Results:
        """Runs what is missing in `jobs` processes (default: one for each core); `retry` tries
        failed cells once more; `tell` hears about once a second how it goes."""
        here = local_storage(out)
        out.mkdir(parents=True, exist_ok=True)
        RunFolder(out).write_text("study.toml", self.plan.to_toml())
        watcher = Worker(self.plan, storage or here, out, grace)
        named = outside.references_in(configs.parse(self.plan.to_toml()))
        watcher.queues[""].study.set_user_attr("plan", self.plan.to_toml())
        watcher.queues[""].study.set_user_attr("sources", json.dumps(_sources(named)))
        watcher.settle()
        if retry:
            watcher.retry()
        if not watcher.settle():
            watcher.refuse_changed_data()
            _supervise(watcher, storage or here, grace, jobs or os.cpu_count() or 1, tell)
        tell(progress(watcher))
        collect(self.plan.name, storage or here, out, sorted(named), only_lost=storage is None)
        return read(out)


def work(
    name: str,
    storage: str,
    out: Path,
    *,
    parts: Sequence[str] = (),
    jobs: int | None = None,
    grace: int = GRACE,
    tell: Callable[[StudyProgress], None] = lambda progress: None,
) -> None:
    """Helps with a study that another machine started, until it is done. `parts`: those from
    outside that the study may name, and whose code may run here."""
    plan = stored_plan(name, storage, parts)
    watcher = Worker(plan, storage, out, grace)
    if not watcher.settle():
        watcher.refuse_changed_data()
        _supervise(watcher, storage, grace, jobs or os.cpu_count() or 1, tell)
    tell(progress(watcher))


def collect(
    name: str, storage: str, out: Path, parts: Sequence[str] = (), only_lost: bool = False
) -> int:
    """Writes the run folders that only other machines have, unless `only_lost`, and small files
    that were lost or damaged here; returns of how many runs. `parts`: as in `work`."""
    plan = stored_plan(name, storage, parts)
    RunFolder(out).write_text("study.toml", plan.to_toml())
    worker = Worker(plan, storage, out)
    worker.outcomes()
    newest = _newest_files(worker)
    folders = {key: RunFolder(out / "runs" / worker.cells[key].name) for key in newest}
    if only_lost:
        newest = {key: files for key, files in newest.items() if _lost(folders[key], files)}
    found = {key: checked(files, key, parts) for key, files in newest.items()}
    fetched = 0
    for key, files in found.items():
        folder = folders[key]
        known = folder.read(STATE, State) if folder.holds(STATE) else None
        is_other = not only_lost and stored.parsed(State, files[STATE], STATE) != known
        wanted = list(files) if is_other else _lost(folder, files)
        fetched += bool(wanted)
        for file in wanted:
            folder.write_text(file, files[file])
    return fetched


def _lost(folder: RunFolder, files: Mapping[str, str]) -> list[str]:
    """Which of these a run folder has no longer."""
    return [file for file, text in files.items() if text and not folder.holds(file)]


def _newest_files(worker: Worker) -> dict[str, dict[str, str]]:
    """The small files of every cell that ended, by key; of several attempts those of the last."""
    found = {}
    for queue in worker.queues.values():
        for trial in queue.trials():
            told = note(trial)
            if told.cell in worker.cells and told.files:
                found[told.cell] = told.files
    return found


def stored_plan(name: str, storage: str, parts: Sequence[str] = ()) -> Plan:
    """The plan of a study in a storage. A storage is a stranger's word: parts from outside that it
    names are imported only if the caller names them too, and their source is the same."""
    if name not in study_names(storage):
        raise ValueError(f"the storage holds no study {name!r}: start it with `unseen study run`")
    told = Queue(storage, name).study.user_attrs
    text = told.get("plan")
    if not isinstance(text, str):
        raise ValueError(f"{name!r} in the storage was not made by `unseen study run`")
    named = outside.references_in(configs.parse(text))
    if strangers := sorted(named - set(parts)):
        options = " ".join(f"--part {shlex.quote(part)}" for part in strangers)
        raise ValueError(f"the study would run code of {', '.join(strangers)} here: add {options}")
    here = _sources(named)
    if other := [part for part, hash in here.items() if json.loads(told["sources"])[part] != hash]:
        raise ValueError(f"{', '.join(other)}: the source here is not the one the study began with")
    return plans.parse(text)


def _sources(named: set[str]) -> dict[str, str]:
    """The hash of the source of each part from outside."""
    origins = {part: outside.origin_of(outside.find(part)) for part in sorted(named)}
    return {part: origin.sha256 for part, origin in origins.items() if origin is not None}


def local_storage(out: Path) -> str:
    """The SQLite file of a study folder."""
    return f"sqlite:///{(out / 'study.db').resolve()}"


def progress(watcher: Worker) -> StudyProgress:
    """How many cells ended, which are running, which failed and why."""
    outcomes = watcher.outcomes()
    running, failed = [], {}
    for queue in watcher.queues.values():
        for trial in queue.trials():
            told = note(trial)
            if trial.state == optuna.trial.TrialState.RUNNING:
                running.append(told.title)
            if told.error is not None and told.cell in watcher.cells:
                failed[told.title] = told.error
            elif trial.state == optuna.trial.TrialState.COMPLETE:
                failed.pop(told.title, None)
    ended = sum(key in outcomes for key in watcher.cells)
    return StudyProgress(ended, watcher.total, tuple(running), failed)


def _supervise(
    watcher: Worker, storage: str, grace: int, jobs: int, tell: Callable[[StudyProgress], None]
) -> None:
    """Keeps `jobs` worker processes at work until the study is done."""
    context = _context()

    def start() -> BaseProcess:
        place = (str(cache_folder()), str(Path.cwd()), os.environ.get(outside.TRUST_VARIABLE, ""))
        words = (watcher.plan.to_toml(), storage, str(watcher.out.resolve()), grace, place)
        process = context.Process(target=_process, args=words)
        process.start()
        return process

    processes = [start() for _ in range(max(1, min(jobs, watcher.total)))]
    deaths, ended = 0, -1
    try:
        while any(process.exitcode != 0 for process in processes):
            asked = time.monotonic()
            now = progress(watcher)
            tell(now)
            spent = time.monotonic() - asked  # with a hundred searches a look takes half a second
            if now.ended == now.total:
                break
            deaths, ended = (0, now.ended) if now.ended > ended else (deaths, ended)
            for place, process in enumerate(processes):
                if process.exitcode not in (None, 0):
                    deaths += 1
                    if deaths > MOST_DEATHS:
                        raise OSError(
                            f"workers end with code {process.exitcode} again and again; too little "
                            "memory for as many jobs? The same command goes on where it stopped"
                        )
                    processes[place] = start()
            at_work = [process.sentinel for process in processes if process.exitcode is None]
            wait(at_work, timeout=max(POLL_SECONDS, LOOKS_APART * spent))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _context() -> Any:
    """Workers forked from a server import torch once for all; its socket lies in the temporary
    folder, and a path beyond 100 letters is none for a socket: then each worker imports it."""
    if len(tempfile.gettempdir()) > LONGEST_SOCKET_FOLDER:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unseen.studies.worker"])
    return context


def _process(text: str, storage: str, out: str, grace: int, place: tuple[str, str, str]) -> None:
    """A worker process: ends with its parent, however that ends, and quietly on Ctrl-C."""
    cache, folder, trust = place  # the server it is forked from may be older than these
    os.environ[CACHE_VARIABLE], os.environ[outside.TRUST_VARIABLE] = cache, trust
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Worker(plans.parse(text), storage, Path(out), grace).work()


def _end_with_parent() -> None:
    """Waits for the end of the process that asked for this one: the server that it was forked from
    lives as long as its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker process"
    parent.join()
    os._exit(1)

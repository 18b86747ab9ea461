"""Runs a study: in worker processes on this machine, and on any others that share its storage.

    study = Study(plan.load(Path("losses.toml")))
    results = study.run(Path("studies/losses"))        # stop it, call it again: it goes on
    results.table()                                    # see results.py

Files    out/study.toml, out/study.db (Optuna, SQLite), out/runs/<run>/ (run folders)
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

from unseen.config import schema as configs
from unseen.core import custom_components, uris
from unseen.core.files import refuse_links
from unseen.core.names import by_front_end
from unseen.data.images.array_files import CACHE_VARIABLE, cache_folder
from unseen.studies import study_file as plans
from unseen.studies.results import Results, read
from unseen.studies.run_files import STATE, State
from unseen.studies.run_queue import GRACE, Queue, study_names
from unseen.studies.study_file import Plan
from unseen.studies.trial_notes import checked, note
from unseen.studies.tuning import tuning_runs
from unseen.studies.worker import Worker
from unseen.training import json_files
from unseen.training.run_folder import RunFolder

POLL_SECONDS = 1.0
PAUSE_FACTOR = 12  # times what asking the storage takes: it is to cost the runs little
LONGEST_SOCKET_FOLDER = 60  # letters; the socket's own name takes about 40 of 107
MOST_DEATHS = 3  # of workers in a row, without a run finished between
_INHERITED = (
    custom_components.TRUST_VARIABLE,
    uris.REMOTE_VARIABLE,
)  # by the user, of this process


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands."""

    ended: int
    total: int
    running: tuple[str, ...]  # titles of runs
    failed: dict[str, str]  # title of a run -> its last error


class Study:
    """A plan that can be run, again and again until it is done."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        for configuration in plan.configurations():
            for planned in tuning_runs(plan, configuration):
                configs.make(planned.values)

    def run(
        self,
        out: Path,
        *,
        jobs: int | None = None,
        storage: str | None = None,
        grace: int = GRACE,
        retry: bool = False,
        progress: Callable[[StudyProgress], None] = lambda progress: None,
    ) -> Results:
        """Runs what is missing in `jobs` processes (default: one for each core); `retry` tries
        failed runs once more; `progress` hears about once a second how it goes."""
        refuse_links(out)
        here = local_storage(out)
        out.mkdir(parents=True, exist_ok=True)
        RunFolder(out).write_text("study.toml", self.plan.to_toml())
        watcher = Worker(self.plan, storage or here, out, grace)
        named = custom_components.references_in(configs.parse(self.plan.to_toml()))
        watcher.queues[""].study.set_user_attr("plan", self.plan.to_toml())
        watcher.queues[""].study.set_user_attr("sources", json.dumps(_sources(named)))
        watcher.resolve()
        if retry:
            watcher.retry()
        if not watcher.resolve():
            watcher.refuse_changed_data()
            _supervise(watcher, storage or here, grace, jobs or os.cpu_count() or 1, progress)
        progress(study_progress(watcher))
        collect(self.plan.name, storage or here, out, sorted(named), only_lost=storage is None)
        return read(out)


def work(
    name: str,
    storage: str,
    out: Path,
    *,
    components: Sequence[str] = (),
    jobs: int | None = None,
    grace: int = GRACE,
    progress: Callable[[StudyProgress], None] = lambda progress: None,
) -> None:
    """Helps with a study that another machine started, until it is done. `components`: custom ones
    that the study may name, and whose code may run here."""
    refuse_links(out)
    custom_components.trust(list(components))
    plan = stored_plan(name, storage, components)
    watcher = Worker(plan, storage, out, grace)
    if not watcher.resolve():
        watcher.refuse_changed_data()
        _supervise(watcher, storage, grace, jobs or os.cpu_count() or 1, progress)
    progress(study_progress(watcher))


def collect(
    name: str, storage: str, out: Path, components: Sequence[str] = (), only_lost: bool = False
) -> int:
    """Writes the run folders that only other machines have, unless `only_lost`, and small files
    that were lost or damaged here; returns of how many runs. `components`: as in `work`."""
    refuse_links(out)
    plan = stored_plan(name, storage, components)
    RunFolder(out).write_text("study.toml", plan.to_toml())
    worker = Worker(plan, storage, out)
    worker.outcomes()
    newest = _newest_files(worker)
    folders = {key: RunFolder(out / "runs" / worker.planned_runs[key].name) for key in newest}
    if only_lost:
        newest = {key: files for key, files in newest.items() if _lost(folders[key], files)}
    result = {key: checked(files, key, components) for key, files in newest.items()}
    fetched = 0
    for key, files in result.items():
        folder = folders[key]
        known = folder.read(STATE, State) if folder.holds(STATE) else None
        is_other = not only_lost and json_files.parsed(State, files[STATE], STATE) != known
        wanted = list(files) if is_other else _lost(folder, files)
        fetched += bool(wanted)
        for file in wanted:
            folder.write_text(file, files[file])
    return fetched


def _lost(folder: RunFolder, files: Mapping[str, str]) -> list[str]:
    """Which of these a run folder has no longer."""
    return [file for file, text in files.items() if text and not folder.holds(file)]


def _newest_files(worker: Worker) -> dict[str, dict[str, str]]:
    """The small files of every run that ended, by key; of several attempts those of the last."""
    result = {}
    for queue in worker.queues.values():
        for trial in queue.trials():
            notes = note(trial)
            if notes.planned in worker.planned_runs and notes.files:
                result[notes.planned] = notes.files
    return result


def stored_plan(name: str, storage: str, components: Sequence[str] = ()) -> Plan:
    """The plan of a study in a storage. Anybody may have written the storage: custom components
    that it names are imported only if the caller names them too, and their source is the same."""
    if name not in study_names(storage):
        raise ValueError(f"the storage holds no study {name!r}: start it with `unseen study run`")
    attributes = Queue(storage, name).study.user_attrs
    text = attributes.get("plan")
    if not isinstance(text, str):
        raise ValueError(f"{name!r} in the storage was not made by `unseen study run`")
    named = custom_components.references_in(configs.parse(text))
    if missing := sorted(named - set(components)):
        options = by_front_end(
            " ".join(f"--component {shlex.quote(name)}" for name in missing),
            f"components={missing}",
        )
        raise ValueError(f"the study would run code of {', '.join(missing)} here: add {options}")
    here = _sources(named)
    if other := [
        name for name, hash in here.items() if json.loads(attributes["sources"])[name] != hash
    ]:
        raise ValueError(f"{', '.join(other)}: the source here is not the one the study began with")
    return plans.parse(text)


def _sources(named: set[str]) -> dict[str, str]:
    """The hash of the source of each custom component."""
    origins = {
        name: custom_components.origin_of(custom_components.find(name)) for name in sorted(named)
    }
    return {name: origin.sha256 for name, origin in origins.items() if origin is not None}


def local_storage(out: Path) -> str:
    """The SQLite file of a study folder."""
    return f"sqlite:///{(out / 'study.db').resolve()}"


def study_progress(watcher: Worker) -> StudyProgress:
    """How many runs ended, which are running, which failed and why."""
    outcomes = watcher.outcomes()
    running, failed = [], {}
    for queue in watcher.queues.values():
        for trial in queue.trials():
            notes = note(trial)
            if trial.state == optuna.trial.TrialState.RUNNING:
                running.append(notes.title)
            if notes.error is not None and notes.planned in watcher.planned_runs:
                failed[notes.title] = notes.error
            elif trial.state == optuna.trial.TrialState.COMPLETE:
                failed.pop(notes.title, None)
    ended = sum(key in outcomes for key in watcher.planned_runs)
    return StudyProgress(ended, watcher.total, tuple(running), failed)


def _supervise(
    watcher: Worker, storage: str, grace: int, jobs: int, progress: Callable[[StudyProgress], None]
) -> None:
    """Keeps `jobs` worker processes at work until the study is done."""
    context = _context()

    words = (watcher.plan.to_toml(), storage, str(watcher.out.resolve()), grace)
    processes = [_start(context, words) for _ in range(max(1, min(jobs, watcher.total)))]
    deaths, ended = 0, -1
    try:
        while any(process.exitcode != 0 for process in processes):
            request = time.monotonic()
            now = study_progress(watcher)
            progress(now)
            spent = time.monotonic() - request  # with a hundred searches a look takes half a second
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
                    processes[place] = _start(context, words)
            at_work = [process.sentinel for process in processes if process.exitcode is None]
            wait(at_work, timeout=max(POLL_SECONDS, PAUSE_FACTOR * spent))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _start(context: Any, words: tuple[str, str, str, int]) -> BaseProcess:
    inherited = {name: os.environ.get(name, "") for name in _INHERITED}
    place = (str(Path.cwd()), inherited | {CACHE_VARIABLE: str(cache_folder())})
    process: BaseProcess = context.Process(target=_process, args=(*words, place))
    with custom_components.safe_children():
        process.start()
    return process


def _context() -> Any:
    """Workers forked from a server import torch once for all; its socket lies in the temporary
    folder, and a path beyond 100 letters is none for a socket: then each worker imports it."""
    if len(tempfile.gettempdir()) > LONGEST_SOCKET_FOLDER:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unseen.studies.worker"])
    return context


def _process(
    text: str, storage: str, out: str, grace: int, place: tuple[str, dict[str, str]]
) -> None:
    """A worker process: ends with its parent, however that ends, and quietly on Ctrl-C."""
    folder, variables = place  # the server it is forked from may be older than these
    os.environ.update(variables)
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

"""The runs of a study as trials of Optuna: each is enqueued once, claimed by one worker, finished.

The storage is a SQLite file beside the runs, or the URL of a PostgreSQL or MySQL server for many
machines. `optuna-dashboard <url>` opens on either.

trial        user attributes: `planned` (the key of its run), `attempt`, `worker`, then `error`, or
             `files`: the small files of the run folder, for machines that share no disk
enqueued     a run with no open, finished or too often failed trial; if two machines enqueue the
             same attempt at once, the trial with the lower number counts and the other is dropped
claimed      waiting -> running is one transaction (under a file lock for SQLite, whose
             transactions do not lock rows); the first heartbeat is recorded before
dead         a worker that sent no heartbeat for `grace` seconds, or whose process is gone from this
             machine: its trial fails without an error, and the run is enqueued again
"""

import json
import os
import re
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.pool import NullPool

from unseen.core.extras import install_command
from unseen.core.files import Lock
from unseen.studies.study_file import PlannedRun
from unseen.studies.trial_notes import note
from unseen.studies.tuning import Outcome

GRACE = 60  # seconds
OPEN = (TrialState.WAITING, TrialState.RUNNING)
ENDED = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned"}


def driver_url(storage: str) -> str:
    """A storage's URL with the driver that the `fleet` extra installs."""
    if not storage.startswith("postgresql://"):
        return storage
    try:
        import psycopg  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a PostgreSQL storage needs psycopg: {install_command('fleet')}"
        ) from error
    return storage.replace("postgresql://", "postgresql+psycopg://", 1)


class Queue:
    """One Optuna study and the runs in it."""

    def __init__(self, storage: str, name: str, retries: int = 1, grace: int = GRACE) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.storage, self.name, self.retries = storage, name, retries
        file = storage.removeprefix("sqlite:///")
        self.lock = Path(f"{file}.lock") if file != storage else None
        self.beat_seconds = max(1, grace // 4)
        with self._alone():
            self.database = _open(storage, self.beat_seconds, grace)
            self.study = optuna.create_study(
                storage=self.database, study_name=name, direction="maximize", load_if_exists=True
            )
        self.id = self.database.get_study_id_from_name(name)

    def trials(self) -> list[FrozenTrial]:
        """Every trial that counts, in order: of two with the same attempt the earlier one."""
        first: dict[tuple[str, int], FrozenTrial] = {}
        for trial in self._stored():
            notes = note(trial)
            first.setdefault((notes.planned, notes.attempt), trial)
        return list(first.values())

    def outcomes(self) -> dict[str, Outcome]:
        """How runs ended, by key."""
        ended = {}
        for key, trials in _by_planned(self.trials()).items():
            outcome = self._outcome(trials)
            if outcome is not None:
                ended[key] = outcome
        return ended

    def enqueue(self, planned_runs: Sequence[PlannedRun]) -> None:
        """Adds the runs that are neither open nor ended."""
        with self._alone():
            known = _by_planned(self.trials())
            for planned in planned_runs:
                trials = known.get(planned.key, [])
                if any(t.state in OPEN for t in trials) or self._outcome(trials) is not None:
                    continue
                self._add(planned, trials)

    def retry(self, planned_runs: Sequence[PlannedRun]) -> None:
        """Adds the runs that failed too often, once more."""
        with self._alone():
            known = _by_planned(self.trials())
            for planned in planned_runs:
                outcome = self._outcome(known.get(planned.key, []))
                if outcome is not None and outcome.state == "failed":
                    self._add(planned, known[planned.key])

    def claim(self) -> FrozenTrial | None:
        """The next waiting trial, now running for this process; None when there is none."""
        with self._alone():
            for trial in self._stored(TrialState.WAITING):
                number = self.trial_id(trial)
                if not self._take(number):
                    continue
                if all(trial.number != counted.number for counted in self.trials()):
                    self.fail(trial, None)  # another machine enqueued the same attempt first
                    continue
                return self.database.get_trial(number)
        return None

    def release_dead(self) -> None:
        """Fails the running trials whose worker is gone."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)
        for trial in self._stored(TrialState.RUNNING):
            if has_ended(note(trial).worker):
                self.fail(trial, None)

    @contextmanager
    def beating(self, trial: FrozenTrial) -> Iterator[None]:
        """Heartbeats while the block runs."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self.beat_seconds):
                with suppress(optuna.exceptions.StorageInternalError):  # the server may come back
                    self.database.record_heartbeat(number)

        number = self.trial_id(trial)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def finish(
        self, trial: FrozenTrial, outcome: Outcome, files: Mapping[str, str] | None = None
    ) -> None:
        """The end of a trial; one that was taken over meanwhile stays as it is."""
        if files:
            self._note(trial, "files", dict(files))
        state = TrialState.PRUNED if outcome.state == "pruned" else TrialState.COMPLETE
        value = outcome.value if state == TrialState.COMPLETE else None
        self._end(trial, state, value)

    def fail(
        self, trial: FrozenTrial, error: str | None, files: Mapping[str, str] | None = None
    ) -> None:
        """A failed trial; without an error it counts as never tried."""
        if error is not None:
            self._note(trial, "error", error)
            self._note(trial, "files", dict(files or {}))
        self._end(trial, TrialState.FAIL)

    def trial_id(self, trial: FrozenTrial) -> int:
        return self.database.get_trial_id_from_study_id_trial_number(self.id, trial.number)

    def _take(self, number: int) -> bool:
        """Waiting -> running, with a heartbeat from the first moment; False: another one has it."""
        try:
            self.database.record_heartbeat(number)
            if not self.database.set_trial_state_values(number, state=TrialState.RUNNING):
                return False
        except (optuna.exceptions.UpdateFinishedTrialError, optuna.exceptions.StorageInternalError):
            return False
        self.database.set_trial_user_attr(number, "worker", worker_name())
        return True

    def _outcome(self, trials: list[FrozenTrial]) -> Outcome | None:
        for trial in trials:
            if trial.state in ENDED:
                value = trial.value if trial.state == TrialState.COMPLETE else None
                state: Any = ENDED[trial.state]
                tuned = note(trial).parameters
                return Outcome(state, float("nan") if value is None else value, tuned)
        failed = [trial for trial in trials if note(trial).error is not None]
        is_open = any(trial.state in OPEN for trial in trials)
        return Outcome("failed") if len(failed) > self.retries and not is_open else None

    def _add(self, planned: PlannedRun, trials: list[FrozenTrial]) -> None:
        attempt = 1 + max((note(trial).attempt for trial in trials), default=0)
        metadata = {"planned": planned.key, "title": planned.title, "attempt": attempt}
        proposed = trials[-1].params if trials else {}  # what a sampler proposed stays
        self.study.enqueue_trial(proposed, user_attrs=planned.labels | metadata)

    def _end(self, trial: FrozenTrial, state: TrialState, value: float | None = None) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # another one was faster
            self.study.tell(trial.number, value, state=state, skip_if_finished=True)

    def _note(self, trial: FrozenTrial, key: str, value: Any) -> None:
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # taken over meanwhile
            self.database.set_trial_user_attr(self.trial_id(trial), key, value)

    def _stored(self, *states: TrialState) -> list[FrozenTrial]:
        try:
            return self.study.get_trials(deepcopy=False, states=states or None)
        except json.JSONDecodeError as error:
            raise damaged(self.storage, str(error)) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self.lock is None:
            yield
            return
        with Lock(self.lock, wait=True):
            yield


def worker_name() -> str:
    """This process, with a name of its own among those of other machines and containers."""
    return f"{_machine()}:{os.getpid()}"


def has_ended(worker: str) -> bool:
    """Whether a process of this very machine has ended; of others we cannot know."""
    machine, _, pid = worker.rpartition(":")
    if not machine or machine != _machine() or not re.fullmatch(r"[1-9]\d{0,8}", pid):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _machine() -> str:
    """The running kernel and the process namespace; unique where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"unknown {os.getpid()} {id(os)}"


def _by_planned(trials: list[FrozenTrial]) -> dict[str, list[FrozenTrial]]:
    planned_runs: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        planned_runs.setdefault(note(trial).planned, []).append(trial)
    return planned_runs


def _sqlite(file: str) -> sqlite3.Connection:
    """Without a wait for the disk at every step: a crash of the machine may forget the last steps,
    but then the run folders still know them."""
    connection = sqlite3.connect(file, timeout=60, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _require_whole(file: str) -> None:
    """Raises ValueError for a database that is there and damaged."""
    if not Path(file).exists():
        return
    try:
        with closing(_sqlite(file)) as connection:
            ((message,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        message = str(error)
    if message != "ok":
        raise damaged(f"sqlite:///{file}", message)


def damaged(storage: str, why: str) -> ValueError:
    file = storage.removeprefix("sqlite:///")
    where = _shown(storage) if file == storage else file
    return ValueError(
        f"{where} is damaged ({' '.join(why.split())}): delete it, and the same command "
        "makes it again from the runs, which are kept"
    )


def study_names(storage: str) -> list[str]:
    """The studies in a storage."""
    file = storage.removeprefix("sqlite:///")
    if file != storage and not Path(file).exists():
        raise ValueError(f"no such storage: {file}")
    result: list[str] = optuna.get_all_study_names(_open(storage, 1, 2))
    return result


def _open(storage: str, beat: int, grace: int) -> optuna.storages.RDBStorage:
    """The database; one that does not answer is said in one line."""
    url, file = driver_url(storage), storage.removeprefix("sqlite:///")
    engine: dict[str, Any] = {"poolclass": NullPool}  # a run lasts longer than a server waits
    if file != storage:
        engine = {"creator": lambda: _sqlite(file)}
        _require_whole(file)
    for seconds in (0.5, 1.0, 2.0, None):
        try:
            with warnings.catch_warnings():  # heartbeats are marked as experimental
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.storages.RDBStorage(
                    url, engine_kwargs=engine, heartbeat_interval=beat, grace_period=grace
                )
        except Exception as error:  # drivers and Optuna raise their own kinds
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            if seconds is not None and ("already exists" in reason or "duplicate" in reason):
                time.sleep(seconds)  # another machine makes the tables at this very moment
                continue
            raise ValueError(f"cannot open the storage {_shown(url)}: {reason}") from error
    raise AssertionError("the last attempt returns or raises")


def _shown(url: str) -> str:
    """A storage's URL without its password."""
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return repr(url)

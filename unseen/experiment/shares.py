"""A batch in shares: further processes of this machine that train a run together with this one.

    with shared(context, out, "judge") as context:    # context.processes are several in here
        ...

Two threads wait for each other in every small layer; two processes with one thread each only once
a step. Every batch is divided among them, exactly as under torchrun (training/processes.py): the
gradients are those of the whole batch, but for the order of sums.

This process starts the others with its settled config and opens the door to them: they read the
data by themselves, take no Ctrl-C, write nothing but caches, and end with this one however it ends.
If one of them ends, this one stops with a `ConnectionError`; the same command goes on from the last
checkpoint.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from unseen import config as configs
from unseen.experiment.items import split_hash
from unseen.experiment.run_context import RunContext, prepare
from unseen.training.processes import joined_here

SECONDS = 0.05  # between two looks at processes that are starting
GRACE = 5.0  # seconds in which one that is asked to end may do so
MEETING, ORDER, READY, SAID = "meeting", "order.json", "ready-{}", "said-{}"
CALL = "from unseen.experiment.run import take_part; take_part()"
# as `cli/allocator.py`, whose word reaches only its own process
KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


@contextmanager
def shared(context: RunContext, out: Path, purpose: str) -> Iterator[RunContext]:
    """The context among `shares` processes, which do `purpose` (`run.take_part`) together."""
    count = context.config.shares
    if count == 1 or context.processes.are_several:
        yield context
        return
    with tempfile.TemporaryDirectory(prefix="unseen-shares-") as made:
        folder, others = Path(made), range(1, count)
        order = {"config": context.config.to_toml(), "out": str(out), "purpose": purpose}
        order |= {"data": context.dataset.fingerprint(), "split": split_hash(context.split)}
        (folder / ORDER).write_text(json.dumps(order))
        started: list[subprocess.Popen[bytes]] = []
        try:
            started += [_started(folder, rank) for rank in others]
            _wait_until_ready(folder, started)
            with joined_here(folder / MEETING, 0, count) as processes:
                yield replace(context, processes=processes)
            for process in started:
                process.wait()
        finally:
            _end(started)


@contextmanager
def taken(folder: Path, rank: int) -> Iterator[tuple[RunContext, Path, str]]:
    """In a process that was started: the context of the run, its folder and what is to be done."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    order = json.loads((folder / ORDER).read_text())
    context = prepare(configs.make_settled(configs.parse(order["config"])))
    own = (context.dataset.fingerprint(), split_hash(context.split))
    if own != (order["data"], order["split"]):
        raise ValueError("the data have changed while this run was being started: start it again")
    (folder / READY.format(rank)).touch()
    with joined_here(folder / MEETING, rank, context.config.shares) as processes:
        yield replace(context, processes=processes), Path(order["out"]), order["purpose"]


def _started(folder: Path, rank: int) -> "subprocess.Popen[bytes]":
    paths = os.pathsep.join(path for path in sys.path if path)  # it imports what this one imports
    with (folder / SAID.format(rank)).open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", CALL, str(folder), str(rank)],
            env=os.environ | KEEPING | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the first process
        )


def _wait_until_ready(folder: Path, started: Sequence["subprocess.Popen[bytes]"]) -> None:
    for rank, process in enumerate(started, start=1):
        while not (folder / READY.format(rank)).exists():
            if process.poll() is not None:
                said = (folder / SAID.format(rank)).read_text(errors="replace").strip()
                why = said.splitlines()[-1] if said else f"code {process.returncode}"
                raise ValueError(f"a share of this run ended as it began: {why}. shares=1 has none")
            time.sleep(SECONDS)


def _end(started: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:  # it hangs in a message
            process.kill()
            process.wait()


def _follow(parent: int) -> None:
    """Ends this process with the one that started it, however that ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)

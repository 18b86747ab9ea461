"""Several processes of this machine train one run together, each on a share of every batch."""

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
from typing import Any

from unseen.config import schema as configs
from unseen.core import custom_components
from unseen.runs.prepare import RunContext, prepare
from unseen.runs.run_items import split_hash
from unseen.training.distributed import joined_here

SECONDS = 0.05  # between two looks at processes that are starting
GRACE = 5.0  # seconds in which one that is asked to end may do so
MEETING, ORDER, READY, OUTPUT = "meeting", "order.json", "ready-{}", "output-{}"
CALL = "from unseen.runs.run import join_run; join_run()"
# as `cli/allocator.py`, whose word reaches only its own process
KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


@contextmanager
def shared(context: RunContext, out: Path, purpose: str) -> Iterator[RunContext]:
    """The context among `cpu_processes` processes, which do `purpose` (`run.join_run`) together.

    Two threads wait for each other in every small layer; two processes with one thread each
    only once a step. The processes divide every batch exactly as under torchrun
    (`training/distributed.py`): the gradients are those of the full batch, but for the order of
    sums.

    This process starts the others with its resolved config. They read the data themselves, take
    no Ctrl-C, write nothing but caches, and end with this one however it ends. If one of them
    ends, this one stops with a `ConnectionError`; the same command resumes from the last
    checkpoint.
    """
    count = context.config.training.machine.cpu_processes
    with tempfile.TemporaryDirectory(prefix="unseen-shares-") as made:
        folder, others = Path(made), range(1, count)
        order: dict[str, Any] = {"config": context.config.to_toml(), "out": str(out)}
        order |= {
            "purpose": purpose,
            "parent": os.getpid(),
            "data": context.dataset.fingerprint(),
            "split": split_hash(context.split),
        }
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
    order = json.loads((folder / ORDER).read_text())
    threading.Thread(target=_follow, args=(order["parent"],), daemon=True).start()
    context = prepare(configs.make_resolved(configs.parse(order["config"])))
    own = (context.dataset.fingerprint(), split_hash(context.split))
    if own != (order["data"], order["split"]):
        raise ValueError("the data have changed while this run was being started: start it again")
    (folder / READY.format(rank)).touch()
    with joined_here(
        folder / MEETING, rank, context.config.training.machine.cpu_processes
    ) as processes:
        yield replace(context, processes=processes), Path(order["out"]), order["purpose"]


def _started(folder: Path, rank: int) -> "subprocess.Popen[bytes]":
    with (folder / OUTPUT.format(rank)).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", CALL, str(folder), str(rank)],
            env=custom_components.safe_environment() | KEEPING,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the first process
        )


def _wait_until_ready(folder: Path, started: Sequence["subprocess.Popen[bytes]"]) -> None:
    for rank, process in enumerate(started, start=1):
        while not (folder / READY.format(rank)).exists():
            if process.poll() is not None:
                output = (folder / OUTPUT.format(rank)).read_text(errors="replace").strip()
                why = output.splitlines()[-1] if output else f"code {process.returncode}"
                raise ValueError(
                    f"a share of this run ended as it began: {why}. cpu_processes=1 has none"
                )
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

"""Who computes the shards of a large job: this process, or the workers of a Ray cluster."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unseen.core import custom_components
from unseen.core.extras import install_command
from unseen.core.names import by_front_end

Work = Callable[[int], int]
Make = Callable[[], Work]
_SHARED_MEMORY = 200 << 20  # bytes of shared memory: only numbers of shards pass through it
_SHORT = Path("/tmp")  # names of sockets have about a hundred characters


class Engine(Protocol):
    """A shard is complete or absent, by the file it leaves: after a stop the same call computes
    those that are absent. Each worker unpickles `make`, calls it once and keeps what it returns
    (a network)."""

    def run(self, make: Make, shards: Sequence[int]) -> Iterator[int]:
        """The number of images of each shard, as they get done, in any order."""
        ...


@dataclass(frozen=True)
class Local:
    """One shard after the other, in this process."""

    def run(self, make: Make, shards: Sequence[int]) -> Iterator[int]:
        work = make() if shards else None
        for shard in shards:
            assert work is not None
            yield work(shard)


@dataclass(frozen=True)
class Ray:
    """A stateful worker on each processor, or GPU where there are some.

    Args:
        cluster: The address of a cluster that runs (`auto`: the one of this machine); None: Ray is
            started here and ends with the job.
        workers: How many; None: as many as there is room for.
        device: What the network runs on.
    """

    cluster: str | None = None
    workers: int | None = None
    device: str = "cpu"

    def run(self, make: Make, shards: Sequence[int]) -> Iterator[int]:
        if not shards:
            return
        with _started(self.cluster, self.workers) as ray:
            gpus = self.device == "cuda"
            there = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1))
            number = max(1, min(self.workers or there, len(shards)))
            # One block a shard: a worker that dies takes one shard with it, which is done again.
            # Blocks are there already: a task that makes them would wait for a processor for ever.
            items = [{"shard": shard} for shard in shards]
            rows = ray.data.from_items(items, override_num_blocks=len(items))
            done = rows.map_batches(
                _Actor,
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=number, max_tasks_in_flight_per_actor=1),
                num_cpus=0 if gpus else 1,
                num_gpus=1 if gpus else None,
                fn_constructor_args=(make, os.environ.get(custom_components.TRUST_VARIABLE, "")),
            )
            with _naming(ray):
                for row in done.iter_rows():
                    yield int(row["done"])


class _Actor:
    """Holds what a worker needs; called with a shard. trusted: as the process that asks has it."""

    def __init__(self, make: Make, trusted: str) -> None:
        os.environ[custom_components.TRUST_VARIABLE] = trusted
        self._work = make()

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.int64]]:
        done = [self._work(int(shard)) for shard in batch["shard"]]
        return {"done": np.array(done, dtype=np.int64)}


@contextmanager
def _started(cluster: str | None, workers: int | None) -> Iterator[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray  # noqa: PLC0415 - an extra
        import ray.data  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{by_front_end('--ray', 'Ray')} needs ray: {install_command('cluster')}"
        ) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    mine = None
    try:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        quiet["address"] = cluster
        if cluster is None:
            base = _SHORT if _SHORT.is_dir() else Path(tempfile.gettempdir())
            mine = tempfile.mkdtemp(prefix="unseen-ray-", dir=base)
            quiet |= {"num_cpus": workers, "object_store_memory": _SHARED_MEMORY, "_temp_dir": mine}
            quiet |= {"include_dashboard": False}
        try:
            ray.init(**quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(f"Ray cannot be started or reached: {error}") from error
        yield ray
    finally:
        ray.shutdown()
        if mine is not None:
            shutil.rmtree(mine, ignore_errors=True)


@contextmanager
def _naming(ray: Any) -> Iterator[None]:
    """What a worker met, as if it had been met here; a lost cluster in one sentence."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ValueError | OSError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is None or cause is error:
            raise
        raise cause from None
    except ray.exceptions.RayError as error:
        raise OSError(f"Ray was lost, the same command goes on: {error}") from error

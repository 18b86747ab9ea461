"""How a batch is divided by what the machine has: cores, and memory.

**Cores** How many processes divide each batch of a run (`runs/cpu_processes.py` starts them).
Two threads of one process wait for each other in every layer, two processes once a step: where
layers are trained on images that are not small, two processes use two cores better. They must
find the data and components by name, and batch norm must not follow the batches, of which each
would see its share only.

**Memory** Where what the backward pass needs of a batch is more than half of the memory that is
free, images are embedded some at a time (`micro_batch`), with the gradient of the whole batch.
"""

import math
import os
import re
from pathlib import Path
from typing import Any

import torch

from unseen.config.schema import Config, ResolvedConfig
from unseen.config.stages import stage_config
from unseen.core import custom_components
from unseen.core.reason import Reason
from unseen.models.layer_outputs import POOLED
from unseen.training import distributed

FREE = 0.5  # the share of free memory that a batch may take
BESIDE = 1.5  # copies and gradients beside what is kept; EfficientNet-Lite0 at 176 px: 65 of 50 MB
SMALL = 64  # up to this many pixels the steps are too short to share
USUAL = 2
CGROUP = Path("/sys/fs/cgroup")


def with_cpu_processes(
    config: Config, resolved: ResolvedConfig, reasons: list[Reason]
) -> tuple[ResolvedConfig, list[Reason]]:
    """The resolved config with its number of processes, and threads for each; the reasons with
    those of what has changed."""
    cores, cpu_processes = torch.get_num_threads(), resolved.training.machine.cpu_processes
    request = config.flat()
    has_objects = custom_components.has_objects(request)
    if request["cpu_processes"] == request["threads"] == "auto" and cores > 1:
        alone = has_objects or distributed.are_started() or not _gains(resolved)
        cpu_processes = 1 if alone else USUAL
    if cpu_processes == 1:
        return resolved, reasons
    if has_objects:
        raise ValueError(
            f"cpu_processes={cpu_processes} starts processes that cannot see the objects of "
            "this one: name the components and the data instead, or leave cpu_processes out"
        )
    usual: dict[str, Any] = {
        "cpu_processes": cpu_processes,
        "threads": max(1, cores // cpu_processes),
        "workers": 1,
    }
    changed = {key: value for key, value in usual.items() if request[key] == "auto"}
    why = {
        "cpu_processes": "processes divide each batch",
        "threads": "in each",
        "workers": "in each",
    }
    reasons = [reason for reason in reasons if reason.key not in changed]
    reasons += [Reason(key, value, why[key]) for key, value in changed.items()]
    return resolved.with_values(changed), reasons


def usual_threads(small: bool) -> tuple[int, str]:
    """Of one process, and why."""
    if small:  # threads that wait for each other in short steps lose more than they gain when busy
        return 1, "small images: the steps are too short to share"
    limit = os.environ.get("OMP_NUM_THREADS")
    return torch.get_num_threads(), f"OMP_NUM_THREADS is {limit}" if limit else "all cores"


def with_micro_batch(
    config: Config, resolved: ResolvedConfig, reasons: list[Reason]
) -> tuple[ResolvedConfig, list[Reason]]:
    """The resolved config with as many images at a time as memory holds, where it is short."""
    is_set = config.flat()["micro_batch"] != "auto"
    if is_set or resolved.model.kind == "custom" or not _is_divisible(resolved):
        return resolved, reasons
    from unseen.models.activation_size import bytes_per_image  # noqa: PLC0415 - seldom needed

    deep = _deep(resolved)
    each = max(
        bytes_per_image(stage.model.backbone, size, stage.model.frozen.frozen_bn)
        for stage in deep
        for size in [max(stage.data.transform.training_sizes, default=stage.data.image_size or 0)]
    )
    machine = resolved.training.machine
    free, cpu_processes = free_memory(machine.device), machine.cpu_processes
    if free is None or not each:
        return resolved, reasons
    fits = max(1, int(FREE * free / cpu_processes / (BESIDE * each)))
    if fits >= math.ceil(max(stage.training.batch_size for stage in deep) / cpu_processes):
        return resolved, reasons
    why = f"{free / 1e9:.1f} GB of memory are free, an image takes {BESIDE * each / 1e6:.0f} MB"
    reasons = [*reasons, Reason("micro_batch", fits, why)]
    return resolved.with_values({"micro_batch": fits}), reasons


def free_memory(device: str) -> int | None:
    """Bytes that can be had now, within the limits of a container; None where nobody says."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(torch.device(device))[0]
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    free = 1024 * int(available[1]) if available else None
    try:
        most, used = (int((CGROUP / f"memory.{n}").read_text()) for n in ("max", "current"))
        inactive = re.search(r"^inactive_file (\d+)$", (CGROUP / "memory.stat").read_text(), re.M)
    except (OSError, ValueError):  # no container, or "max": no limit
        return free
    left = most - used + (int(inactive[1]) if inactive else 0)  # copies of files give way
    return left if free is None else min(free, left)


def _gains(resolved: ResolvedConfig) -> bool:
    """Whether two processes are faster than two threads."""
    large = all((stage.data.image_size or 0) > SMALL for stage in _deep(resolved))
    return resolved.training.machine.device == "cpu" and large and _is_divisible(resolved)


def _is_divisible(resolved: ResolvedConfig) -> bool:
    """Whether some training goes through layers, and a divided batch gives the same."""
    deep = _deep(resolved)
    still = all(stage.model.frozen.frozen_bn != "off" for stage in deep)
    return bool(deep) and still and not resolved.training.manifold_mixup


def _deep(resolved: ResolvedConfig) -> list[ResolvedConfig]:
    """The trainings of the run that go through layers of the backbone."""
    stages = [resolved, *(stage_config(resolved, stage.name) for stage in resolved.training.stages)]
    return [
        stage
        for stage in stages
        if stage.model.frozen.freeze_until != POOLED and stage.data.image_size
    ]

"""How a batch is divided by what the machine has: cores, and memory.

**Cores** How many processes divide each batch of a run (`experiment/shares.py` starts them).
Two threads of one process wait for each other in every layer, two processes once a step: where
layers are trained on pictures that are not small, two processes use two cores better. They must
find the data and parts by name, and batch norm must not follow the batches, of which each would see
its share only.

**Memory** Where what the backward pass needs of a batch is more than half of the memory that is
free, pictures are embedded some at a time (`micro_batch`), with the gradient of the whole batch.
"""

import math
import re
from pathlib import Path
from typing import Any

import torch

from unseen import outside
from unseen.config import Config, SettledConfig
from unseen.networks.taps import POOLED
from unseen.rungs import rung_config
from unseen.training import processes

FREE = 0.5  # the share of free memory that a batch may take
BESIDE = 1.5  # copies and gradients beside what is kept; EfficientNet-Lite0 at 176 px: 65 of 50 MB
SMALL = 64  # up to this many pixels the steps are too short to share
USUAL = 2
CGROUP = Path("/sys/fs/cgroup")


def with_shares(
    config: Config, settled: SettledConfig, reasons: list[str]
) -> tuple[SettledConfig, list[str]]:
    """The settled config with its number of processes, and threads for each; the reasons with
    those of what has changed."""
    cores, shares = torch.get_num_threads(), settled.shares
    has_objects = outside.has_objects(config.model_dump())
    if config.shares == "auto" and config.threads == "auto" and cores > 1:
        alone = has_objects or processes.are_started() or not _gains(settled)
        shares = 1 if alone else USUAL
    if shares == 1:
        return settled, reasons
    if has_objects:
        raise ValueError(
            f"shares={shares} starts processes that cannot see the objects of this one: name the "
            "parts and the data instead, or leave shares out"
        )
    usual: dict[str, Any] = {"shares": shares, "threads": max(1, cores // shares), "workers": 1}
    changed = {key: value for key, value in usual.items() if getattr(config, key) == "auto"}
    why = {"shares": "processes divide each batch", "threads": "in each", "workers": "in each"}
    sentences = [reason for reason in reasons if reason.partition(" = ")[0] not in changed]
    sentences += [f"{key} = {value}: {why[key]}" for key, value in changed.items()]
    return settled.model_copy(update=changed), sentences


def with_micro_batch(
    config: Config, settled: SettledConfig, reasons: list[str]
) -> tuple[SettledConfig, list[str]]:
    """The settled config with as many pictures at a time as memory holds, where it is short."""
    if config.micro_batch != "auto" or settled.has_own_network or not _can_be_divided(settled):
        return settled, reasons
    from unseen.networks.activation_size import bytes_per_picture  # noqa: PLC0415 - seldom needed

    deep = _deep(settled)
    each = max(
        bytes_per_picture(rung.backbone, size, rung.frozen_bn)
        for rung in deep
        for size in [max(rung.training_sizes, default=rung.picture_size or 0)]
    )
    free, shares = free_memory(settled.device), settled.shares
    if free is None or not each:
        return settled, reasons
    fits = max(1, int(FREE * free / shares / (BESIDE * each)))
    if fits >= math.ceil(max(rung.batch_size for rung in deep) / shares):
        return settled, reasons
    why = f"{free / 1e9:.1f} GB of memory are free, a picture takes {BESIDE * each / 1e6:.0f} MB"
    message = f"micro_batch = {fits}: {why}"
    return settled.model_copy(update={"micro_batch": fits}), [*reasons, message]


def free_memory(device: str) -> int | None:
    """Bytes that can be had now, within the limits of a container; None where nobody says."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(torch.device(device))[0]
    try:
        told = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    free = 1024 * int(told[1]) if told else None
    try:
        most, used = (int((CGROUP / f"memory.{n}").read_text()) for n in ("max", "current"))
        kept = re.search(r"^inactive_file (\d+)$", (CGROUP / "memory.stat").read_text(), re.M)
    except (OSError, ValueError):  # no container, or "max": no limit
        return free
    left = most - used + (int(kept[1]) if kept else 0)  # copies of files give way
    return left if free is None else min(free, left)


def _gains(settled: SettledConfig) -> bool:
    """Whether two processes are faster than two threads."""
    large = all((rung.picture_size or 0) > SMALL for rung in _deep(settled))
    return settled.device == "cpu" and large and _can_be_divided(settled)


def _can_be_divided(settled: SettledConfig) -> bool:
    """Whether some training goes through layers, and parts of a batch give what the whole does."""
    deep = _deep(settled)
    still = all(rung.frozen_bn != "off" for rung in deep)
    return bool(deep) and still and not settled.manifold_mixup


def _deep(settled: SettledConfig) -> list[SettledConfig]:
    """The trainings of the run that go through layers of the backbone."""
    rungs = [settled, *(rung_config(settled, rung.name) for rung in settled.ladder)]
    return [rung for rung in rungs if rung.freeze_until != POOLED and rung.picture_size]

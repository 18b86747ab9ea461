"""What this machine does: seconds per picture, embedded and trained, over the size of pictures.

A few batches of the run's own pictures at two sizes, some seconds for a small network. On a CPU
processor time counts, divided among the cores that the run uses: whatever else the machine does at
the moment does not change a plan. Kept for a day in `speeds/` of the cache (safe to delete), by
machine, network and data.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unseen import assemble
from unseen.contracts import Batch
from unseen.data.pictures.stored import cache_folder
from unseen.experiment.classes import training_classes
from unseen.experiment.run_context import RunContext, computing, sampler_of
from unseen.experiment.source import Pictures
from unseen.files import replace_bytes
from unseen.rungs import cut_of_last_layers
from unseen.training.processes import Processes

BATCH = 32  # pictures in a step
WARM, MEASURED = 3, 4  # steps: the first ones are up to 1.5 times as long
EMBEDDED = 64  # pictures, after a batch that warms up
BUSY = 0.85  # of the time, a core that is used computes; two wait for each other and for memory
FASTER = 1.2  # times as fast: bfloat16 is worth its rounding
FORWARD = 8  # pictures, by which a CPU says whether a step in bfloat16 is worth measuring
AGE = 24 * 3600.0  # seconds that a measurement is good for

Now = Callable[[], float]  # seconds
Measure = Callable[[RunContext, Now], float]


@dataclass(frozen=True)
class Line:
    """Seconds per picture: fixed + per_area * size^2."""

    fixed: float
    per_area: float

    def at(self, size: float) -> float:
        return self.fixed + self.per_area * size**2

    @classmethod
    def through(cls, small: int, seconds: float, large: int, more: float) -> "Line":
        """Through two measurements; noise makes neither part negative."""
        slope = max(0.0, (more - seconds) / (large**2 - small**2))
        return cls(max(0.0, seconds - slope * small**2), slope)


@dataclass(frozen=True)
class Speeds:
    """embed: read, prepared and through the network. train: the same in a step of all layers.
    rest: a step of the last layers alone, on kept activations. larger: embedded by a larger
    network, where there is one. bf16: whether steps are in it, because that is faster."""

    embed: Line
    train: Line
    rest: Line
    larger: Line | None = None
    bf16: bool = False


def speeds_of(context: RunContext, larger: str | None = None, now: Now | None = None) -> Speeds:
    """Measured here, today or now, for the run's processes and threads together. larger: another
    backbone that a head may be trained on."""
    path = cache_folder() / "speeds" / f"{_key(context, larger)}.json"
    if path.exists() and time.time() - path.stat().st_mtime < AGE:
        kept = json.loads(path.read_text())
        bf16 = kept.pop("bf16")
        return Speeds(**{k: line and Line(**line) for k, line in kept.items()}, bf16=bf16)
    config, on_cpu = context.config, context.device.type == "cpu"
    cores = BUSY * config.shares * config.threads if on_cpu else 1.0
    clock = now or (time.process_time if on_cpu else time.perf_counter)
    with computing(context):
        found = measured(context, larger, lambda: clock() / cores)
    replace_bytes(path, json.dumps(asdict(found)).encode())
    return found


def measured(context: RunContext, larger: str | None, now: Now) -> Speeds:
    """On some of the run's pictures, at half and at five sixths of its own size."""
    own = context.config.picture_size
    assert own is not None, "only runs on pictures are planned"
    small, large = (max(32, round(own * share / 32) * 32) for share in (0.5, 5 / 6))
    large = max(large, small + 32)
    cut = cut_of_last_layers(context.config.backbone, own)

    def line(measure: Measure, layer: str | None = None, **more: Any) -> Line:
        times = [measure(_at(context, size, layer, **more), now) for size in (small, large)]
        return Line.through(small, times[0], large, times[1])

    embed, train, rest = line(_embedding), line(_training), line(_training, cut)
    other = None if larger is None else line(_embedding, backbone=larger)
    bf16 = False
    if _may_be_faster(_at(context, large, None), now):
        half = line(_training, precision="bf16")
        bf16 = train.at(large) >= FASTER * half.at(large)
        if bf16:
            train, rest = half, line(_training, cut, precision="bf16")
    return Speeds(embed, train, rest, other, bf16)


def _may_be_faster(context: RunContext, now: Now) -> bool:
    """Whether bfloat16 is worth measuring: not where a precision was given. A CPU without
    instructions for it would take minutes to say so; one that has them may still be slower
    (depthwise convolutions), which few pictures show."""
    if _has_given_precision(context):
        return False
    if context.device.type != "cpu":
        return True
    if not any(found for name, found in torch.cpu.get_capabilities().items() if "bf16" in name):
        return False
    size = context.config.picture_size
    assert size is not None, "only runs on pictures are planned"
    network = assemble.network(context.config).eval()
    images = torch.zeros(FORWARD, 3, size, size).to(memory_format=torch.channels_last)
    seconds = dict[bool, float]()
    for half in (False, True):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            network(images)
            began = now()
            network(images)
            seconds[half] = now() - began
    return seconds[False] >= FASTER * seconds[True]


def _has_given_precision(context: RunContext) -> bool:
    return context.asked is not None and "precision" in context.asked.model_fields_set


def _at(context: RunContext, size: int, layer: str | None, **more: Any) -> RunContext:
    """Everything trained after a layer, at a size, in small batches."""
    values: dict[str, Any] = {"picture_size": size, "freeze_until": layer, "ladder": []}
    values |= {"batch_size": BATCH, "frozen_bn": "full", "mirror": False, "views": 0} | more
    config = context.config.model_copy(update=values)
    return replace(context, config=config, processes=Processes())


def _embedding(context: RunContext, now: Now) -> float:
    network = assemble.network(context.config).to(context.device)
    _, transform = assemble.picture_transforms(context.config, network)
    items = context.split.train[:EMBEDDED]
    context.embed(network, transform, items[:BATCH])
    began = now()
    context.embed(network, transform, items)
    return (now() - began) / len(items)


def _training(context: RunContext, now: Now) -> float:
    config, split, labels = context.config, context.split, context.dataset.labels
    sampler = sampler_of(context)
    class_of = training_classes(labels, split.train)
    made = assemble.assemble(
        config, int(class_of.max()) + 1, len(sampler), relevance=context.relevance
    )
    whole = config.model_copy(update={"freeze_until": None})
    source = Pictures(replace(context, config=whole), made.network)
    batches: Iterator[Batch] = chain.from_iterable(
        source.loader.training_batches(sampler, epoch, 0) for epoch in range(WARM + MEASURED)
    )
    if made.prefix is not None:
        batches = iter([_kept(made.prefix, b) for b in islice(batches, WARM + MEASURED)])
    warm = made.trainer.epoch(islice(batches, WARM), class_of, lambda event: None)
    began = now()
    event = made.trainer.epoch(islice(batches, MEASURED), class_of, lambda event: None)
    return (now() - began) / (BATCH * max(1, event.step - warm.step))


def _kept(prefix: nn.Module, batch: Batch) -> Batch:
    return Batch(prefix(batch.images), batch.labels, batch.indices)


def _key(context: RunContext, larger: str | None) -> str:
    config = context.config
    gpu = torch.cuda.get_device_name() if config.device.startswith("cuda") else ""
    machine = [platform.platform(), _processor(), os.cpu_count(), gpu, torch.__version__]
    network = [config.backbone, config.pooling, larger]
    precision = [config.precision, _has_given_precision(context)]
    cores = [config.shares, config.threads, config.workers]
    steps = [BATCH, WARM, MEASURED, EMBEDDED, BUSY, FASTER, FORWARD]
    sentences = [*machine, *network, *precision, *cores, *steps, context.dataset.fingerprint()]
    return hashlib.sha256(json.dumps(sentences).encode()).hexdigest()[:24]


def _processor() -> str:
    """Linux says it in a file, other systems by themselves."""
    path = Path("/proc/cpuinfo")
    lines: Iterable[str] = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

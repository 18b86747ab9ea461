"""The speed of this machine: seconds per image, embedded and trained, over the image size."""

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

from unseen.config import build
from unseen.config.stages import last_layers_freeze_point
from unseen.core.contracts import Batch, Progress
from unseen.core.files import replace_bytes
from unseen.data.images.array_files import cache_folder
from unseen.runs.batch_source import ImageBatches
from unseen.runs.prepare import Callbacks, RunContext, computing, sampler_of
from unseen.runs.run_items import training_classes
from unseen.training.distributed import Processes
from unseen.training.events import Note

BATCH = 32  # images in a step
WARM, MEASURED = 3, 4  # steps: the first ones are up to 1.5 times as long
EMBEDDED = 64  # images, after a batch that warms up
BUSY = 0.85  # of the time, a core that is used computes; two wait for each other and for memory
FASTER = 1.2  # times as fast: bfloat16 is worth its rounding
FORWARD = 8  # images, by which a CPU says whether a step in bfloat16 is worth measuring
MEASURING = "measuring the speed of this machine"
AGE = 24 * 3600.0  # seconds that a measurement is good for

Now = Callable[[], float]  # seconds


@dataclass(frozen=True)
class Line:
    """Seconds per image: fixed + per_area * size^2."""

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
    rest: a step of the last layers alone, on kept activations. bigger: embedded by a bigger
    network, where there is one. bf16: whether steps are in it, because that is faster."""

    embed: Line
    train: Line
    rest: Line
    bigger: Line | None = None
    bf16: bool = False


class Meter:
    """The timer of a measurement, and how many of its steps are done."""

    def __init__(self, now: Now, progress: Progress | None, total: int) -> None:
        self.now, self.progress = now, progress or (lambda done, total: None)
        self.done, self.total = 0, total
        self.progress(0, total)

    def step(self, *_: object) -> None:
        self.done += 1
        self.progress(self.done, max(self.done, self.total))

    def end(self) -> None:
        self.progress(self.total, self.total)


Measure = Callable[[RunContext, Meter], float]


def speeds_of(
    context: RunContext,
    bigger: str | None = None,
    now: Now | None = None,
    callbacks: Callbacks | None = None,
) -> Speeds:
    """Measured here, today or now, for the run's processes and threads together. bigger: another
    backbone that a head may be trained on.

    A few batches of the run's images at two sizes, some seconds for a small network. On a CPU
    processor time counts, divided among the cores that the run uses: other load does not change
    a plan. Cached for a day in `speeds/` of the cache, by machine, network and data.
    """
    path = cache_folder() / "speeds" / f"{_key(context, bigger)}.json"
    if path.exists() and time.time() - path.stat().st_mtime < AGE:
        stored = json.loads(path.read_text())
        bf16 = stored.pop("bf16")
        return Speeds(**{k: line and Line(**line) for k, line in stored.items()}, bf16=bf16)
    config, on_cpu = context.config, context.device.type == "cpu"
    cores = (
        BUSY * config.training.machine.cpu_processes * config.training.machine.threads
        if on_cpu
        else 1.0
    )
    timer = now or (time.process_time if on_cpu else time.perf_counter)
    callbacks = callbacks or Callbacks()
    callbacks.log(Note(f"{MEASURING}, which plans the time budget; the result is kept for a day"))
    with computing(context):
        result = measured(context, bigger, lambda: timer() / cores, callbacks.of(MEASURING))
    replace_bytes(path, json.dumps(asdict(result)).encode())
    return result


def measured(
    context: RunContext, bigger: str | None, now: Now, progress: Progress | None = None
) -> Speeds:
    """On some of the run's images, at half and at five sixths of its own size."""
    own = context.config.data.image_size
    assert own is not None, "only runs on images are planned"
    small, large = (max(32, round(own * fraction / 32) * 32) for fraction in (0.5, 5 / 6))
    large = max(large, small + 32)
    embedding, training = 2 * 2, 2 * (WARM + MEASURED)  # steps at two sizes
    meter = Meter(now, progress, (2 if bigger else 1) * embedding + 2 * training)
    point = last_layers_freeze_point(context.config.model.backbone, own)

    def line(measure: Measure, layer: str | None = None, **more: Any) -> Line:
        times = [measure(_at(context, size, layer, **more), meter) for size in (small, large)]
        return Line.through(small, times[0], large, times[1])

    embed, train, rest = line(_embedding), line(_training), line(_training, point)
    other = None if bigger is None else line(_embedding, backbone=bigger)
    bf16 = False
    if _may_be_faster(_at(context, large, None), now):
        meter.total += training
        half = line(_training, precision="bf16")
        bf16 = train.at(large) >= FASTER * half.at(large)
        if bf16:
            meter.total += training
            train, rest = half, line(_training, point, precision="bf16")
    meter.end()
    return Speeds(embed, train, rest, other, bf16)


def _may_be_faster(context: RunContext, now: Now) -> bool:
    """Whether bfloat16 is worth measuring: not where a precision was given. A CPU without
    instructions for it would take minutes to say so; one that has them may still be slower
    (depthwise convolutions), which few images show."""
    if _has_fixed_precision(context):
        return False
    if context.device.type != "cpu":
        return True
    if not any(result for name, result in torch.cpu.get_capabilities().items() if "bf16" in name):
        return False
    size = context.config.data.image_size
    assert size is not None, "only runs on images are planned"
    network = build.network(context.config).eval()
    images = torch.zeros(FORWARD, 3, size, size).to(memory_format=torch.channels_last)
    seconds = dict[bool, float]()
    for half in (False, True):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            network(images)
            began = now()
            network(images)
            seconds[half] = now() - began
    return seconds[False] >= FASTER * seconds[True]


def _has_fixed_precision(context: RunContext) -> bool:
    return context.request is not None and "precision" in context.request.user_keys()


def _at(context: RunContext, size: int, layer: str | None, **more: Any) -> RunContext:
    """Everything trained after a layer, at a size, in small batches."""
    values: dict[str, Any] = {"image_size": size, "freeze_until": layer, "stages": []}
    values |= {
        "batch_size": BATCH,
        "frozen_bn": "full",
        "mirror": False,
        "cached_augmentations": 0,
    } | more
    config = context.config.with_values(values)
    return replace(context, config=config, processes=Processes())


def _embedding(context: RunContext, meter: Meter) -> float:
    network = build.network(context.config).to(context.device)
    _, transform = build.image_transforms(context.config, network)
    items = context.split.train[:EMBEDDED]
    context.embed(network, transform, items[:BATCH])
    meter.step()
    began = meter.now()
    context.embed(network, transform, items)
    seconds = meter.now() - began
    meter.step()
    return seconds / len(items)


def _training(context: RunContext, meter: Meter) -> float:
    config, split, labels = context.config, context.split, context.dataset.labels
    sampler = sampler_of(context)
    class_of = training_classes(labels, split.train)
    components = build.build(
        config, int(class_of.max()) + 1, len(sampler), relevance=context.relevance
    )
    whole = config.with_values({"freeze_until": None})
    source = ImageBatches(replace(context, config=whole), components.network)
    batches: Iterator[Batch] = chain.from_iterable(
        source.loader.training_batches(sampler, epoch, 0) for epoch in range(WARM + MEASURED)
    )
    if components.frozen is not None:
        batches = iter([_through(components.frozen, b) for b in islice(batches, WARM + MEASURED)])
    warm = components.trainer.epoch(islice(batches, WARM), class_of, meter.step)
    began = meter.now()
    event = components.trainer.epoch(islice(batches, MEASURED), class_of, meter.step)
    return (meter.now() - began) / (BATCH * max(1, event.step - warm.step))


def _through(prefix: nn.Module, batch: Batch) -> Batch:
    return Batch(prefix(batch.images), batch.labels, batch.indices)


def _key(context: RunContext, bigger: str | None) -> str:
    config = context.config
    gpu = torch.cuda.get_device_name() if config.training.machine.device.startswith("cuda") else ""
    machine = [platform.platform(), _processor(), os.cpu_count(), gpu, torch.__version__]
    network = [config.model.backbone, config.model.pooling, bigger]
    precision = [config.training.precision, _has_fixed_precision(context)]
    cores = [
        config.training.machine.cpu_processes,
        config.training.machine.threads,
        config.training.machine.workers,
    ]
    steps = [BATCH, WARM, MEASURED, EMBEDDED, BUSY, FASTER, FORWARD, *Speeds.__annotations__]
    sentences = [*machine, *network, *precision, *cores, *steps, context.dataset.fingerprint()]
    return hashlib.sha256(json.dumps(sentences).encode()).hexdigest()[:24]


def _processor() -> str:
    """Linux says it in a file, other systems by themselves."""
    path = Path("/proc/cpuinfo")
    lines: Iterable[str] = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

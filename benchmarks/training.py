"""Images per second of the whole training loop, against a plain PyTorch loop.

    python benchmarks/training.py                         generated photographs
    python benchmarks/training.py path/to/images        one folder per class
    python benchmarks/training.py --threads 2 --workers 2
    python benchmarks/training.py --device cuda --precision bf16 --batch 112 --workers 4
    python benchmarks/training.py --cpu-processes --batch 56     one process of two threads, or two

The same network (EfficientNet-Lite0 unless named, random weights), images, sampling (4 per
class), crops, multi-similarity loss and miner, AdamW, in one process, epoch by epoch in turn:

    ours     unseen's loop: JPEGs decoded at the smallest useful scale, channels-last, event log
    peer     what is usual: PIL decodes whole images, torchvision transforms, DataLoader,
             contiguous layout, loss, miner and sampler of pytorch-metric-learning
    bare     forward, loss, backward and optimiser step of ours on images that lie in memory
    loop     unseen's loop on the same images in memory: what it costs beside the bare step

Medians over repeats. `--workers` prepare images beside the network on both sides (threads in
ours, processes in the peer's); 0: everything in one thread after the other, timed by the time the
process computes, so that what else runs on the machine hardly matters. `--precision` is that of
ours; the peer stays in float32.

`--cpu-processes` leaves the peer out and asks how two cores are best used by the whole loop
(batch norm frozen): one process with two threads and two workers, norms as layers of their own or
folded into the convolutions (`models/folded_training.py`), or two processes that divide each batch,
with one thread and one worker each (`cpu_processes=2` of `unseen train`). All in turn, by the wall
clock.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

import unseen.core.torchvision_operators  # noqa: F401 - before torchvision
from unseen.cli.allocator import keep_freed_memory
from unseen.config import build
from unseen.config import schema as configs
from unseen.core.contracts import Batch
from unseen.data.images.loader import training_batches
from unseen.models import folded_training
from unseen.runs.prepare import RunContext, prepare
from unseen.runs.run_items import training_classes
from unseen.training.distributed import Processes, joined_here
from unseen.training.event_log import EventLog
from unseen.training.trainer import Trainer

PER_CLASS, ALONE = 4, Processes()


def generate(root: Path, classes: int = 40, per_class: int = 12) -> None:
    """JPEGs of the size of photographs in CUB (500 x 375), smooth with some noise."""
    rng = np.random.default_rng(0)
    for label in range(classes):
        (root / f"{label:03d}").mkdir(parents=True)
        for number in range(per_class):
            coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
            smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype=float)
            noisy = (smooth + rng.normal(0, 8, smooth.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(root / f"{label:03d}/{number:03d}.jpg", quality=90)


def resolve(root: Path, words: argparse.Namespace) -> RunContext:
    values = {
        "data": {"name": "folder", "root": str(root)},
        "backbone": words.backbone,
        "image_size": words.size,
        "transform": "base",
        "batch_size": words.batch,
        "sampler": {"name": "m_per_class", "per_class": PER_CLASS, "steps": words.steps},
        "epochs": 1000,
        "schedule": "constant",
        "workers": words.workers,
        "threads": words.threads,
        "device": words.device,
        "precision": words.precision,
        "frozen_bn": "full" if words.cpu_processes else "off",
    }
    return prepare(configs.make(values))


class Ours:
    """The loop of `unseen train` between two looks at the validation classes."""

    def __init__(self, context: RunContext, folder: Path, processes: Processes = ALONE) -> None:
        config, self.context, self.processes = context.config, context, processes
        network = build.network(config)
        self.transform, _ = build.image_transforms(config, network)
        self.sampler = build.sampler(config, context.split.train, context.dataset.labels)
        self.class_of = training_classes(context.dataset.labels, context.split.train)
        objective = build.objective(config, int(self.class_of.max()) + 1, network)
        scheduled_optimizer = build.scheduled_optimizer(
            config, network, objective, len(self.sampler)
        )
        self.trainer = Trainer(
            network,
            objective,
            scheduled_optimizer,
            context.device,
            config.training.seed,
            processes=processes,
        )
        self.event_log = EventLog(folder / f"event log-{processes.rank}-{processes.count}.jsonl")

    def batches(self) -> Iterator[Batch]:
        place, config = self.trainer.place, self.context.config
        data, workers = self.context.dataset, config.training.machine.workers
        assert isinstance(workers, int)
        return training_batches(
            data,
            self.transform,
            self.sampler,
            place.epoch,
            config.training.seed,
            workers=workers,
            fraction=self.processes.fraction,
        )

    def epoch(self) -> None:
        self.trainer.epoch(self.batches(), self.class_of, self.event_log)

    def loop_on(self, batches: list[Batch]) -> None:
        self.trainer.epoch(batches, self.class_of, self.event_log)

    def bare_on(self, batches: list[Batch]) -> None:
        trainer = self.trainer
        trainer.network.train()
        for batch in batches:
            images = batch.images.to(trainer.device, memory_format=torch.channels_last)
            labels = self.class_of[batch.labels].to(trainer.device)
            trainer.scheduled_optimizer.optimizer.zero_grad(set_to_none=True)
            with trainer.scheduled_optimizer.autocast():
                total = trainer.objective(trainer.network(images), labels)["total"]
            trainer.scheduled_optimizer.backward(total)
            trainer.scheduled_optimizer.optimizer.step()
            total.item()


class ImageBatches(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The usual data set: an image is opened, decoded whole, transformed."""

    def __init__(
        self, context: RunContext, transform: Callable[[Image.Image], torch.Tensor]
    ) -> None:
        data: Any = context.dataset
        self.paths = [data.path(index) for index in context.split.train]
        self.labels = data.labels[context.split.train]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB")), int(self.labels[index])


class Peer:
    """A plain loop as in the examples of pytorch-metric-learning."""

    def __init__(self, context: RunContext) -> None:
        from pytorch_metric_learning import losses, miners, samplers
        from torchvision.transforms import v2

        config = context.config
        network = build.network(config)
        spec = network.backbone.input_spec
        transform = v2.Compose(
            [
                v2.RandomResizedCrop(spec.size),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(spec.mean, spec.std),
            ]
        )
        images = ImageBatches(context, transform)
        steps, batch = config.sampler.values["steps"], config.training.batch_size
        assert isinstance(batch, int)
        assert isinstance(config.training.machine.workers, int)
        sampler = samplers.MPerClassSampler(images.labels, PER_CLASS, batch, steps * batch)
        self.loader = torch.utils.data.DataLoader(
            images,
            batch,
            sampler=sampler,
            num_workers=config.training.machine.workers,
            persistent_workers=config.training.machine.workers > 0,
        )
        self.network = network.to(context.device)  # contiguous, as it comes
        self.device = context.device
        self.loss, self.miner = losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner()
        self.optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=1e-4)

    def epoch(self) -> None:
        self.network.train()
        for images, classes in self.loader:
            inputs, labels = images.to(self.device), classes.to(self.device)
            embeddings = self.network(inputs).embeddings
            loss = self.loss(embeddings, labels, self.miner(embeddings, labels))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()


def in_turn(
    parts: dict[str, Callable[[], None]],
    repeats: int,
    images: int,
    time_budget: Callable[[], float],
) -> dict[str, list[float]]:
    """Images per second of each part, repeat by repeat, the first one left out."""
    rates: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(repeats + 1):
        for name, run in parts.items():
            began = time_budget()
            run()
            if number:
                rates[name].append(images / (time_budget() - began))
    return rates


def measure(root: Path, words: argparse.Namespace, folder: Path) -> None:
    torch.set_num_threads(words.threads)
    context = resolve(root, words)
    ours, peer = Ours(context, folder), Peer(context)
    kept = list(ours.batches())
    parts = {
        "ours": ours.epoch,
        "peer": peer.epoch,
        "bare": lambda: ours.bare_on(kept),
        "loop": lambda: ours.loop_on(kept),
    }
    alone = words.threads == 1 and words.workers == 0
    time_budget = time.process_time if alone else time.perf_counter
    rates = in_turn(parts, words.repeats, words.steps * words.batch, time_budget)
    print(f"{words.threads} threads, {words.workers} workers, {words.size} px, batch {words.batch}")
    for name, result in rates.items():
        low, high = min(result), max(result)
        print(f"  {name:5}{statistics.median(result):8.1f} images/s   ({low:.1f} to {high:.1f})")

    def ratio(one: str, other: str) -> float:
        return statistics.median(
            a / b for a, b in zip(rates[one], rates[other], strict=True)
        )  # neighbours in time: the machine is noisy

    print(f"  ours over peer {ratio('ours', 'peer'):.2f} (goal 1.3)")
    print(f"  loop over bare step {100 * (ratio('bare', 'loop') - 1):+.1f} % (goal under 5 %)")


def measure_processes(root: Path, words: argparse.Namespace, folder: Path) -> None:
    """What two cores do as threads of one process, and as two processes; `--rank` is the second."""
    words.workers, words.threads = 1, 1
    if not words.rank:
        command = [sys.executable, __file__, str(root), "--cpu-processes", "--rank", "1"]
        for key in ("size", "batch", "steps", "repeats"):
            command += [f"--{key}", str(getattr(words, key))]
        second = subprocess.Popen([*command, "--meeting", str(folder)])
    rates: dict[str, list[float]] = {"layers": [], "threads": [], "cpu_processes": []}
    with joined_here((words.meeting or folder) / "meeting", words.rank, 2) as processes:
        sharded, alone = Ours(resolve(root, words), folder, processes), dict[str, Ours]()
        if processes.is_first:
            words.workers, words.threads = 2, 2
            with patch.object(folded_training, "fold_in_training"):
                alone["layers"] = Ours(resolve(root, words), folder)
            alone["threads"] = Ours(resolve(root, words), folder)
        for number in range(words.repeats + 1):
            for name, one in alone.items():
                took = seconds(2, one.epoch)
                rates[name] += [words.steps * words.batch / took] * bool(number)
            processes.wait()
            took = seconds(1, sharded.epoch)
            rates["cpu_processes"] += [words.steps * words.batch / took] * bool(number)
    if words.rank:
        return
    second.wait()
    print(f"two cores, {words.size} px, batch {words.batch}, batch norm frozen")
    for name, result in rates.items():
        low, high = min(result), max(result)
        print(f"  {name:8}{statistics.median(result):8.1f} images/s   ({low:.1f} to {high:.1f})")
    for one, other in (
        ("threads", "layers"),
        ("cpu_processes", "threads"),
        ("cpu_processes", "layers"),
    ):
        ratio = statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True))
        print(f"  {one} over {other} {ratio:.2f}")


def seconds(threads: int, run: Callable[[], None]) -> float:
    torch.set_num_threads(threads)
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("images", nargs="?", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "bf16", "fp16"), default="float32")
    parser.add_argument(
        "--cpu-processes", action="store_true", help="two threads against two processes"
    )
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    keep_freed_memory()  # as `unseen train` does
    with tempfile.TemporaryDirectory() as made:
        root = words.images or Path(made) / "images"
        if words.images is None:
            generate(root)
        (measure_processes if words.cpu_processes else measure)(root, words, Path(made))


if __name__ == "__main__":
    main()

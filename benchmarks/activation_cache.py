"""Time per epoch with frozen layers kept on disk, against running them again for every batch.

    python benchmarks/activation_cache.py path/to/photos      # <class>/*.jpg, e.g. CUB

EfficientNet-Lite0 with the weights of its package, multi-similarity loss, AdamW. Both sides train
the same layers on the same images; without a cache images are decoded, cropped and sent through
the whole network. Whole epochs of the training loop that every run has, over `--batches` times
`--size` images; the two sides take turns. What counts is the processor time of all threads
together, which other work on the machine changes little.

    python benchmarks/activation_cache.py path/to/photos --gradients

How far rounding moves the gradient: int16 as it is kept, and float16 for comparison.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unseen.cli.allocator import keep_freed_memory
from unseen.config import build
from unseen.config import schema as configs
from unseen.core.contracts import Batch, IntArray
from unseen.data.activations.cache import ActivationCache, Augmentations
from unseen.data.folder import Folder
from unseen.data.images import transforms
from unseen.data.images.loader import evaluation_batches, training_batches
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.models.backbone import create_backbone
from unseen.models.freezing import split_network
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.runs.run_items import training_classes
from unseen.training.trainer import Trainer

CUTS = {"from block 11 on": "blocks.4", "last stage": "blocks.5", "head only": "pooled"}
PER_CLASS = 14  # neighbours on disk: few blocks have to be computed


class Batches:
    """A sampler of the same few batches in every epoch."""

    def __init__(self, labels: IntArray, count: int, size: int) -> None:
        classes = np.unique(labels)[: count * size // PER_CLASS]
        items = [np.flatnonzero(labels == c)[:PER_CLASS] for c in classes]
        self.items = np.concatenate(items)
        self.lists = [part.tolist() for part in np.array_split(self.items, count)]

    def set_epoch(self, epoch: int) -> None: ...

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


def lite0() -> EmbeddingNetwork:
    backbone = create_backbone("efficientnet_lite0", 224, "imagenet", "avg+max", "stats")
    return EmbeddingNetwork(backbone, Head(backbone.num_features, 512))


def trainer(model: nn.Module, network: EmbeddingNetwork, num_classes: int, steps: int) -> Trainer:
    """The training loop of every run, on a whole network or on what comes after a cut."""
    values = {"embedding_size": 512, "lr": 1e-4, "epochs": 8, "device": "cpu"}
    config = configs.make(values | {"miner": "multi_similarity"})
    objective = build.objective(config, num_classes, network)
    scheduled_optimizer = build.scheduled_optimizer(config, network, objective, steps)
    return Trainer(model, objective, scheduled_optimizer, torch.device("cpu"), seed=0)


def seconds(training: Trainer, batches: Iterable[Batch], class_of: Tensor) -> float:
    """Processor time of an epoch."""
    began = time.process_time()
    training.epoch(batches, class_of, lambda event: None)
    return time.process_time() - began


def compare(dataset: Folder, layer: str, arguments: argparse.Namespace) -> tuple[float, float, int]:
    """Median processor seconds per image without and with a cache, and bytes kept per image."""
    network = lite0()
    frozen, rest = split_network(network, layer)
    spec = network.backbone.input_spec
    sampler = Batches(dataset.labels, arguments.batches, arguments.size)
    class_of = training_classes(dataset.labels, sampler.items)
    training, _ = transforms.named("base", spec.size, spec.mean, spec.std)
    classes, steps = int(class_of.max()) + 1, len(sampler)
    whole, part = (trainer(model, network, classes, steps) for model in (network, rest))
    result: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        cache = ActivationCache(Path(folder), frozen, Augmentations(dataset, training))
        cache.build(sampler.items, workers=1)
        for epoch in range(arguments.repeats):
            images = training_batches(dataset, training, sampler, epoch, 0, workers=1)
            result["without"].append(seconds(whole, images, class_of))
            kept = cache.training_batches(sampler, epoch, 0)
            result["with"].append(seconds(part, kept, class_of))
        record = cache.files[0].record.itemsize
    count = len(sampler.items)
    without, cached = (statistics.median(times) / count for times in result.values())
    return without, cached, record


def gradient(network: nn.Module, rest: nn.Module, activations: Tensor, labels: Tensor) -> Tensor:
    """All parameters' gradients in one vector."""
    network.zero_grad(set_to_none=True)
    MultiSimilarityLoss()(rest(activations).embeddings, labels).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def rounding(dataset: Folder, layer: str, batch: int) -> dict[str, float]:
    """Relative difference of the whole gradient of a batch of 4 classes with 4 images each."""
    torch.manual_seed(batch)
    network = lite0()
    frozen, rest = split_network(network, layer)
    network.train()
    rng = np.random.default_rng(batch)
    chosen = rng.choice(dataset.labels.max() + 1, 4, replace=False)
    items = [rng.choice(np.flatnonzero(dataset.labels == c), 4, replace=False) for c in chosen]
    spec = network.backbone.input_spec
    _, evaluation = transforms.named("base", spec.size, spec.mean, spec.std)
    result = evaluation_batches(dataset, np.concatenate(items), evaluation, 16, workers=0)
    images = next(iter(result))
    exact = frozen(images.images)
    places = (2, 3) if exact.ndim == 4 else (1,)
    scale = exact.abs().amax(places, keepdim=True).clamp(min=1e-30) / np.iinfo(np.int16).max
    rounded = {"int16": (exact / scale).round() * scale, "float16": exact.half().float()}
    reference = gradient(network, rest, exact, images.labels)
    return {
        name: float((gradient(network, rest, kept, images.labels) - reference).norm())
        / float(reference.norm())
        for name, kept in rounded.items()
    }


def print_gradients(dataset: Folder) -> None:
    print("| frozen until | int16 | float16 |")
    print("|---|---:|---:|")
    for layer in ("blocks.3", "blocks.4", "blocks.5", "pooled"):
        result = [rounding(dataset, layer, batch) for batch in range(4)]
        worst = [f"{100 * max(one[name] for one in result):.3f} %" for name in ("int16", "float16")]
        print(f"| `{layer}` | {' | '.join(worst)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("photos", help="a folder of class folders")
    parser.add_argument("--size", type=int, default=56, help="images in a batch")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gradients", action="store_true", help="what rounding does")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as `unseen train` does
    dataset = Folder(arguments.photos)
    if arguments.gradients:
        print_gradients(dataset)
        return
    print("| trained | frozen until | without | with | faster | kept per image |")
    print("|---|---|---:|---:|---:|---:|")
    for name, layer in CUTS.items():
        without, cached, record = compare(dataset, layer, arguments)
        print(
            f"| {name} | `{layer}` | {1e3 * without:.1f} ms | {1e3 * cached:.2f} ms | "
            f"{without / cached:.1f} times | {record / 1e3:.1f} kB |",
            flush=True,
        )


if __name__ == "__main__":
    main()

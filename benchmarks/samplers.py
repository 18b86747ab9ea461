"""What a batch costs, and what an epoch covers: every sampler on data shaped like Online Products.

    python benchmarks/samplers.py [--only hard_neighbors]

59,551 images of 11,318 classes with 2 to 12 images, batches of 112 with 2 per class; embedded
samplers see a pool of 1024 rows of 128 numbers and 10 candidates. One thread, processor time,
median of repeats. The sampler of pytorch-metric-learning stands beside ours if it is installed.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unseen.core import registry
from unseen.core.contracts import IntArray
from unseen.samplers.base import BatchSampler
from unseen.samplers.embedded.base import EmbeddedSampler

IMAGES, CLASSES, BATCH, PER_CLASS, SIZE = 59_551, 11_318, 112, 2, 128
TARGETS = {"greedy_coreset": 40.0, "distance_matching": 60.0, "frechet_matching": 40.0}
REPEATS, BATCHES = 7, 10
SEARCHED = {"hard_neighbors": 150}  # one search serves many batches


def online_products() -> tuple[IntArray, IntArray]:
    """As many images and classes, class sizes 2 to 12."""
    generator = np.random.default_rng(0)
    sizes = np.full(CLASSES, 2)
    while (missing := IMAGES - sizes.sum()) > 0:
        more = generator.integers(CLASSES, size=missing)
        sizes = np.minimum(sizes + np.bincount(more, minlength=CLASSES), 12)
    labels = generator.permutation(np.repeat(np.arange(CLASSES), sizes))
    return np.arange(IMAGES), labels


def make(name: str, items: IntArray, labels: IntArray) -> BatchSampler:
    takes = {p.name for p in registry.parameters(registry.find("samplers", name))}
    given = {"per_class": PER_CLASS} if "per_class" in takes else {}
    sampler: BatchSampler = registry.create(
        "samplers", name, given, items=items, labels=labels, batch_size=BATCH, seed=0
    )
    if isinstance(sampler, EmbeddedSampler):
        draw = torch.Generator().manual_seed(0)
        sampler.fill(torch.randn(len(items), SIZE, generator=draw))
        sampler.steps = SEARCHED.get(name, BATCHES)  # an epoch of so many, at the same cost each
    return sampler


def milliseconds(draw_epoch: Callable[[int], int]) -> float:
    """Median over epochs of the time per batch, the first epoch left out."""
    times = []
    for epoch in range(REPEATS + 1):
        began = time.process_time()
        batches = draw_epoch(epoch)
        times.append((time.process_time() - began) / batches * 1000)
    return statistics.median(times[1:])


def of_ours(sampler: BatchSampler) -> Callable[[int], int]:
    def draw(epoch: int) -> int:
        sampler.set_epoch(epoch)
        return sum(1 for _ in sampler)

    return draw


def peer(labels: IntArray) -> tuple[float, int] | None:
    """Time per batch and classes of one epoch of the best-known library's sampler."""
    try:
        from pytorch_metric_learning.samplers import MPerClassSampler
    except ModuleNotFoundError:
        return None
    sampler: Any = MPerClassSampler(labels, PER_CLASS, BATCH, length_before_new_iter=IMAGES)
    cost = milliseconds(lambda epoch: sum(1 for _ in sampler) // BATCH)
    return cost, len(np.unique(labels[list(sampler)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="samplers whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    items, labels = online_products()
    print(f"{'sampler':34}{'ms/batch':>10}{'target':>8}{'classes in an epoch':>22}")
    for name in filter(lambda name: options.only in name, registry.names("samplers")):
        sampler = make(name, items, labels)
        cost = milliseconds(of_ours(sampler))
        target = TARGETS.get(name)
        covered = "" if name in TARGETS else f"{sampler.describe()['classes_drawn']:,}"
        print(f"{name:34}{cost:10.2f}{'' if target is None else f'{target:.0f}':>8}{covered:>22}")
    result = None if options.only else peer(labels)
    if result:
        print(f"{'pytorch-metric-learning m-per-class':34}{result[0]:9.2f}{'':8}{result[1]:>22,}")


if __name__ == "__main__":
    main()

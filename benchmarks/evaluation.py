"""Evaluation beside pytorch-metric-learning + faiss: time in one process, memory in one each.

    python benchmarks/evaluation.py              CUB and a medium size, seconds
    python benchmarks/evaluation.py sop          the size of Stanford Online Products, minutes
    python benchmarks/evaluation.py million      R@1 among 1,000,000 items, exact, with progress
    python benchmarks/evaluation.py million --approximate       the same through a faiss index

Both sides compute P@1, R-precision and mAP@R of the same float32 embeddings with the same number of
threads; the peer uses its best setting, k="max_bin_count". Runs alternate, the median counts: on a
noisy machine ratios mean more than seconds. `product` is the time of the bare matrix product, of
which self-retrieval needs half: the limit. Peak memory is that of a fresh process, less what it
held before it began. The data are synthetic: clouds around random class centres.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall

SIZES = {  # items, classes, embedding size, repeats
    "cub": (5_924, 100, 512, 9),
    "medium": (20_000, 3_700, 512, 3),
    "sop": (60_502, 11_316, 512, 1),
}
METRICS = {
    "precision_at_1": "precision_at_1",
    "r_precision": "r_precision",
    "map_at_r": "mean_average_precision_at_r",
}
MILLION = (1_000_000, 100_000, 128)


def clouds(items: int, classes: int, size: int, noise: float = 1.5) -> tuple[Tensor, Tensor]:
    """Unit embeddings around random centres, in random order, and their labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (items,), generator=generator)
    x = torch.randn(classes, size, generator=generator)[labels]
    x += noise * torch.randn(items, size, generator=generator)
    return torch.nn.functional.normalize(x), labels


def ours(x: Tensor, labels: Tensor) -> dict[str, float]:
    found = evaluate(x, labels, metrics=tuple(METRICS), resamples=0)
    return {name: found.values[name].value for name in METRICS}


def theirs(x: Tensor, labels: Tensor) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(
        include=tuple(METRICS.values()), k="max_bin_count", device=torch.device("cpu")
    )
    found = calculator.get_accuracy(x, labels)
    return {name: found[peer] for name, peer in METRICS.items()}


SIDES: dict[str, Callable[[Tensor, Tensor], dict[str, float]]] = {"unseen": ours, "pml": theirs}


def product(x: Tensor, block: int = 2048) -> None:
    """The bare matrix of all similarities, block by block, into one place."""
    out = torch.empty(block, len(x))
    for rows in x.split(block):
        torch.mm(rows, x.T, out=out[: len(rows)])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, threads: int) -> None:
    items, classes, size, repeats = SIZES[name]
    x, labels = clouds(items, classes, size)
    scores: dict[str, dict[str, float]] = {}
    times: dict[str, list[float]] = {"unseen": [], "pml": [], "product": []}
    for _ in range(repeats):
        for side, run in SIDES.items():
            times[side].append(
                seconds(lambda run=run, side=side: scores.update({side: run(x, labels)}))
            )
        times["product"].append(seconds(lambda: product(x)))
    median = {side: statistics.median(seen) for side, seen in times.items()}
    print(f"\n{name}: {items:,} x {size}, {classes:,} classes, {threads} threads")
    for side in SIDES:
        memory = peak_memory(name, side, threads)
        values = "  ".join(f"{metric} {value:.6f}" for metric, value in scores[side].items())
        print(f"  {side:8}{median[side]:9.3f} s   peak {memory:7.0f} MB   {values}")
    share = median["product"] / 2 / median["unseen"]
    print(f"  product {median['product']:9.3f} s   half of it is {share:.0%} of our time")
    ratios = [p / u for p, u in zip(times["pml"], times["unseen"], strict=True)]
    print(f"  {statistics.median(ratios):.2f} times faster (median of the runs' ratios)")


def peak_memory(name: str, side: str, threads: int) -> float:
    """Megabytes a side adds to a fresh process that already holds the data."""
    command = [sys.executable, __file__, "--child", side, "--threads", str(threads), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def child(name: str, side: str) -> None:
    items, classes, size, _ = SIZES[name]
    x, labels = clouds(items, classes, size)
    SIDES[side](*clouds(300, 10, 8))  # libraries are loaded
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = peak()
    SIDES[side](x, labels)
    print(peak() - before)


def peak() -> float:
    """Largest resident size of this process so far, in megabytes (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def million(approximate: bool) -> None:
    items, classes, size = MILLION
    x, labels = clouds(items, classes, size, noise=1.0)
    flops = items**2 * size  # n^2 / 2 pairs, a multiplication and an addition per dimension
    minutes = flops / (2 * 8192**2 * size) * seconds(lambda: product(x[:8192])) / 60
    print(f"{items:,} x {size}: {flops:.1e} operations, grows as n^2; about {minutes:.0f} minutes")
    if approximate:
        through_index(x, labels)
        return
    start = time.perf_counter()

    def show(done: int, total: int) -> None:
        if done % (total // 200) == 0 or done == total:
            spent = time.perf_counter() - start
            left = spent / done * (total - done)
            print(
                f"\r{done / total:6.1%}  {spent:6.0f} s spent, {left:6.0f} s left ",
                end="",
                flush=True,
            )

    found = retrieve(x, labels, 1, progress=show)
    recall = float(Recall(1)(found).nanmean())
    spent = time.perf_counter() - start
    print(f"\nR@1 {recall:.6f} in {spent:.0f} s, peak {peak() / 1024:.2f} GB with the data")


def through_index(x: Tensor, labels: Tensor, checked: int = 1000) -> None:
    """A faiss index instead of all pairs, and how often it finds the true nearest neighbour."""
    import faiss

    start = time.perf_counter()
    index = faiss.index_factory(x.shape[1], "IVF4096,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(x[:: len(x) // 200_000].numpy())
    index.add(x.numpy())
    index.nprobe = 32
    items = torch.from_numpy(index.search(x.numpy(), 2)[1])
    itself = items[:, 0] == torch.arange(len(x))
    nearest = torch.where(itself, items[:, 1], items[:, 0])
    recall = float((labels[nearest] == labels).double().mean())
    spent = time.perf_counter() - start
    print(f"R@1 about {recall:.6f} in {spent:.0f} s, looking into {index.nprobe} of 4096 cells")
    asked = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))[:checked]
    exact = retrieve(
        x[asked], labels[asked], 1, gallery_embeddings=x, gallery_labels=labels, positions=asked
    )
    agree = float((exact.indices[:, 0] == nearest[asked]).double().mean())
    print(f"the index finds the true nearest neighbour of {agree:.1%} of {checked} queries")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "sizes", nargs="*", default=["cub", "medium"], help=f"{', '.join(SIZES)}, million"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--approximate", action="store_true")
    parser.add_argument("--child", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.sizes:
        if options.child:
            child(name, options.child)
        elif name == "million":
            million(options.approximate)
        elif name in SIZES:
            compare(name, options.threads)
        else:
            parser.error(f"sizes are {', '.join(SIZES)} and million, got {name}")


if __name__ == "__main__":
    main()

"""Evaluation beside pytorch-metric-learning + faiss: time in one process, memory in one each.

    python benchmarks/evaluation.py              CUB and a medium size, seconds
    python benchmarks/evaluation.py sop          the size of Stanford Online Products, minutes
    python benchmarks/evaluation.py million      R@1 among 1,000,000 items, exact, with progress

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
from functools import partial
from pathlib import Path

import torch
from timing import Row, add_rows, in_turn, middle, ratios
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.recall import Recall
from unseen.neighbors.certified import Integers

SIZES = {  # items, classes, embedding size, repeats
    "cub": (5_924, 100, 512, 9),
    "medium": (20_000, 3_700, 512, 3),
    "sop": (60_502, 11_316, 512, 1),
}
GOALS = {"cub": 3.0, "medium": 3.0, "sop": 6.0}  # times the peer
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
    result = evaluate(x, labels, metrics=tuple(METRICS), resamples=0)
    return {name: result.values[name].value for name in METRICS}


def theirs(x: Tensor, labels: Tensor) -> dict[str, float]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(
        include=tuple(METRICS.values()), k="max_bin_count", device=torch.device("cpu")
    )
    result = calculator.get_accuracy(x, labels)
    return {name: result[peer] for name, peer in METRICS.items()}


SIDES: dict[str, Callable[[Tensor, Tensor], dict[str, float]]] = {"unseen": ours, "pml": theirs}


def product(x: Tensor, block: int = 2048) -> None:
    """The bare matrix of all similarities, block by block, into one place."""
    out = torch.empty(block, len(x))
    for rows in x.split(block):
        torch.mm(rows, x.T, out=out[: len(rows)])


def integers(whole: Tensor, block: int = 2048) -> None:
    """The same in 8-bit integers, which no exact search here does without; of half the rows, by
    symmetry."""
    out = torch.empty(block, len(whole), dtype=torch.int32)
    for rows in whole[: len(whole) // 2].split(block):
        torch._int_mm(rows, whole.T, out=out[: len(rows)])


def compare(name: str, threads: int, rows: Path | None) -> None:
    items, classes, size, repeats = SIZES[name]
    x, labels = clouds(items, classes, size)
    scores: dict[str, dict[str, float]] = {}
    used: dict[str, list[float]] = {side: [] for side in SIDES}  # what load disturbs less

    def run(side: str) -> None:
        before = time.process_time()
        scores[side] = SIDES[side](x, labels)
        used[side].append(time.process_time() - before)

    for side in SIDES.values():
        side(*clouds(300, 10, 8))  # libraries are loaded
    whole = Integers.of(x).whole
    sides = {side: partial(run, side) for side in SIDES}
    sides |= {"product": partial(product, x), "integers": partial(integers, whole)}
    clock = time.process_time if threads == 1 else time.perf_counter
    times = in_turn(sides, repeats, clock, warm=repeats > 1)
    median = {side: statistics.median(seen) for side, seen in times.items()}
    print(f"\n{name}: {items:,} x {size}, {classes:,} classes, {threads} threads")
    memory = {side: peak_memory(name, side, threads) for side in SIDES}
    for side in SIDES:
        values = "  ".join(f"{metric} {value:.6f}" for metric, value in scores[side].items())
        print(f"  {side:8}{median[side]:9.3f} s   peak {memory[side]:7.0f} MB   {values}")
    fraction = median["product"] / 2 / median["unseen"]
    print(f"  product {median['product']:9.3f} s   half of it is {fraction:.0%} of our time")
    seen = middle(ratios(times["pml"], times["unseen"]))
    print(f"  {seen[0]:.2f} times faster (median of the runs' ratios)")
    ours_, theirs_ = (statistics.median(used[side]) for side in SIDES)
    print(f"  processor time {ours_:.2f} s, peer {theirs_:.2f} s: {theirs_ / ours_:.2f} times less")
    work = f"evaluation, {items:,} x {size}"
    most = statistics.median(ratios(times["pml"], times["integers"]))
    limit = f"{most:.3g} times: half the product of integers alone"
    add_rows(rows, Row(work, "PML + faiss", *seen, goal=GOALS[name], limit=limit))
    if name == "sop":
        held = memory["unseen"]
        row = Row(f"{work}: memory", "", held, held, held, 500, "MB", higher_is_better=False)
        add_rows(rows, row)


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


def million(items: int, rows: Path | None) -> None:
    """R@1 among many items of few images a class."""
    size = MILLION[2]
    x, labels = clouds(items, items * MILLION[1] // MILLION[0], size, noise=1.0)
    start, used = time.perf_counter(), time.process_time()

    def spent() -> str:
        seconds = time.perf_counter() - start
        return f"{seconds:.0f} s ({time.process_time() - used:.0f} s of processor time)"

    def show(done: int, total: int) -> None:
        if done % max(1, total // 200) == 0 or done == total:
            seconds = time.perf_counter() - start
            left = seconds / done * (total - done)
            print(f"\r{done / total:6.1%}  {seconds:6.0f} s spent, {left:6.0f} s left ", end="")
            sys.stdout.flush()

    recall = float(Recall(1)(retrieve(x, labels, 1, progress=show)).nanmean())
    print(f"\nR@1 {recall:.6f} in {spent()}, peak {peak() / 1024:.2f} GB with the data")
    minutes = (time.perf_counter() - start) / 60
    work = f"R@1 among {items:,} x {size}, exact"
    some = Integers.of(x[:16_384]).whole
    seconds = min(in_turn({"integers": partial(integers, some)}, 5, time.perf_counter)["integers"])
    limit = f"{seconds * (items / len(some)) ** 2 / 60:.2g} minutes: the product of integers alone"
    row = Row(work, "", minutes, minutes, minutes, 8, "minutes", False, limit)
    add_rows(rows, row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "sizes", nargs="*", default=["cub", "medium"], help=f"{', '.join(SIZES)}, million"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--items", type=int, default=MILLION[0], help="of million: a smaller piece")
    parser.add_argument("--rows", type=Path, help="the figures go into this file too")
    parser.add_argument("--child", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.sizes:
        if options.child:
            child(name, options.child)
        elif name == "million":
            million(options.items, options.rows)
        elif name in SIZES:
            compare(name, options.threads, options.rows)
        else:
            parser.error(f"sizes are {', '.join(SIZES)} and million, got {name}")


if __name__ == "__main__":
    main()

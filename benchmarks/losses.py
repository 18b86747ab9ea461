"""Losses and miners against pytorch-metric-learning: one process, one thread, interleaved, medians.

    python benchmarks/losses.py [--repeats 30] [--size b=112] [--only lifted]
    python benchmarks/losses.py --profile       our steps: operations, and how far from the limit
    python benchmarks/losses.py --compile       our steps beside themselves under torch.compile

A step is miner + loss + backward, on the same embeddings and the same definition on both sides.
The machine may be noisy: each repeat runs our step and the peer's one after the other, timed by
what the processor does, and the median of the ratios counts. `smooth_ap` of the peer is wrong for
most batch shapes (it is only timed).
"""

import argparse
import math
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_metric_learning as pml
import torch
from pytorch_metric_learning import distances, miners
from pytorch_metric_learning import losses as peer
from timing import Row, add_rows, geometric_mean, in_turn, middle, ratios
from torch import Tensor

from unseen.core import registry

D = 128


@dataclass(frozen=True)
class Case:
    """The same step on both sides."""

    name: str
    loss: str
    values: dict[str, Any]
    miner: tuple[str, dict[str, Any]] | None
    peer_loss: Callable[[int], Any]  # from the number of classes
    peer_miner: Callable[[], Any] | None = None


ACTIVE_EUCLIDEAN = {"distance": "euclidean", "reduction": "active"}
RAW = distances.LpDistance(normalize_embeddings=False)
ONE_PAIR_PER_CLASS: tuple[str, dict[str, Any]] = ("n_pair", {"per_class": True})
DISTANCE_WEIGHTED: tuple[str, dict[str, Any]] = ("distance_weighted", {})
CASES = [
    Case(
        "margin + distance",
        "margin",
        {},
        DISTANCE_WEIGHTED,
        lambda c: peer.MarginLoss(0.2, beta=1.2, learn_beta=True, num_classes=c),
        miners.DistanceWeightedMiner,
    ),
    Case(
        "triplet + distance",
        "triplet",
        ACTIVE_EUCLIDEAN,
        DISTANCE_WEIGHTED,
        lambda c: peer.TripletMarginLoss(0.2),
        miners.DistanceWeightedMiner,
    ),
    Case(
        "triplet, all",
        "triplet",
        ACTIVE_EUCLIDEAN,
        None,
        lambda c: peer.TripletMarginLoss(0.2),
    ),
    Case(
        "smooth triplet, all",
        "smooth_triplet",
        {"scale": 1.0},
        None,
        lambda c: peer.TripletMarginLoss(
            0.0, smooth_loss=True, distance=distances.LpDistance(power=2)
        ),
    ),
    Case(
        "multi-similarity + miner",
        "multi_similarity",
        {},
        ("multi_similarity", {}),
        lambda c: peer.MultiSimilarityLoss(2, 50, 0.5),
        lambda: miners.MultiSimilarityMiner(0.1),
    ),
    Case(
        "lifted structure", "lifted_structure", {}, None, lambda c: peer.LiftedStructureLoss(1, 0)
    ),
    Case(
        "generalized lifted",
        "generalized_lifted",
        {"nu": 0.0},
        None,
        lambda c: peer.GeneralizedLiftedStructureLoss(1, 0, distance=RAW),
    ),
    Case("histogram", "histogram", {}, None, lambda c: peer.HistogramLoss(64)),
    Case(
        "SNR",
        "snr",
        {"weight": 0.0},
        None,
        lambda c: peer.TripletMarginLoss(0.2, distance=distances.SNRDistance()),
    ),
    Case(
        "soft-triple",
        "soft_triple",
        {"tau": 0.0},
        None,
        lambda c: peer.SoftTripleLoss(c, D, centers_per_class=10, la=20, gamma=0.1, margin=0.01),
    ),
    Case("proxy-anchor", "proxy_anchor", {}, None, lambda c: peer.ProxyAnchorLoss(c, D)),
    Case(
        "proxy-NCA",
        "proxy_nca",
        {"scale": 32.0, "include_positive": True},
        None,
        lambda c: peer.ProxyNCALoss(c, D, softmax_scale=32),
    ),
    Case(
        "contrastive",
        "contrastive",
        {"reduction": "active"},
        None,
        lambda c: peer.ContrastiveLoss(0, 1),
    ),
    Case(
        "angular",
        "angular",
        {"n_pair": False, "nu": 0.0, "weight": 1.0},
        None,
        lambda c: peer.AngularLoss(45),
    ),
    Case(
        "arcface",
        "arcface",
        {"margin": math.radians(28.6)},
        None,
        lambda c: peer.ArcFaceLoss(c, D, margin=28.6, scale=64),
    ),
    Case(
        "normalized softmax",
        "normalized_softmax",
        {},
        None,
        lambda c: peer.NormalizedSoftmaxLoss(c, D),
    ),
    Case(
        "n-pair",
        "n_pair",
        {"negatives": "positives", "normalize": True, "nu": 0.0},
        ONE_PAIR_PER_CLASS,
        # the peer's loss takes the first pair of each class by itself; our miner draws one
        lambda c: peer.NPairsLoss(),
    ),
    Case("supcon", "supcon", {}, None, lambda c: peer.SupConLoss(0.1)),
    Case("circle", "circle", {}, None, lambda c: peer.CircleLoss(0.4, 80)),
    Case("smooth-AP (peer wrong)", "smooth_ap", {}, None, lambda c: peer.SmoothAPLoss(0.01)),
]
SIZES = {"b=112": (112, 2, 100), "b=512": (512, 4, 1000)}  # batch, images per class, classes
GOALS = {"b=112": 4.5, "b=512": 11.0}


def batch(size: int, per_class: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(classes, generator=generator)[: size // per_class]
    labels = chosen.repeat_interleave(per_class)
    centers = torch.randn(classes, D, generator=generator)
    embeddings = centers[labels] + 2.0 * torch.randn(size, D, generator=generator)
    # of unit length: the peer's angular loss leaves its negatives as they are
    return torch.nn.functional.normalize(embeddings), labels


def step(loss: Any, miner: Any, embeddings: Tensor, labels: Tensor) -> None:
    leaf = embeddings.clone().requires_grad_()
    mined = None if miner is None else miner(leaf, labels)
    loss(leaf, labels, mined).backward()


def our_step(case: Case, size: str, compiled: bool = False) -> Callable[[], None]:
    b, per_class, classes = SIZES[size]
    ours = registry.create("losses", case.loss, case.values, num_classes=classes, embedding_size=D)
    if compiled:
        torch.compiler.reset()  # one process may compile a function for a few losses only
        ours = torch.compile(ours)
    miner = case.miner and registry.create("miners", case.miner[0], case.miner[1])
    return partial(step, ours, miner, *batch(b, per_class, classes))


def peer_step(case: Case, size: str) -> Callable[[], None]:
    b, per_class, classes = SIZES[size]
    miner = case.peer_miner and case.peer_miner()
    return partial(step, case.peer_loss(classes), miner, *batch(b, per_class, classes))


def compare(case: Case, size: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of the steps, ours and the peer's."""
    sides = {"ours": our_step(case, size), "peer": peer_step(case, size)}
    slow = max(max(first) for first in in_turn(sides, 1, warm=False).values())
    return in_turn(sides, max(2, min(repeats, int(20 / slow))), warm=False)


def limit(size: str) -> float:
    """Seconds of what no step on a matrix of pairs can do without: two products and a softmax."""
    x, _ = batch(*SIZES[size])

    def bare() -> None:
        torch.softmax(x @ x.T, dim=1) @ x

    return min(in_turn({"bare": bare}, 200)["bare"])


def profile(cases: list[Case], sizes: list[str]) -> None:
    """What our steps consist of: operations, and how far from the limit they are."""
    print("| size | step | ms | operations | times the limit |\n|---|---|---:|---:|---:|")
    for size in sizes:
        least = limit(size)
        print(f"| {size} | two products and a softmax | {1e3 * least:.2f} | 4 | 1.0 |")
        for case in cases:
            run = our_step(case, size)
            spent = statistics.median(in_turn({"ours": run}, 100)["ours"])
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
                run()
            count = sum(event.name.startswith("aten::") for event in seen.events())
            print(
                f"| {size} | {case.name} | {1e3 * spent:.2f} | {count} | {spent / least:.1f} |",
                flush=True,
            )


def beside_compiled(cases: list[Case], sizes: list[str], repeats: int) -> None:
    """Our steps as they are and with a compiled loss; the miner stays as it is."""
    print("| size | step | ms | compiled | times as fast | first step |")
    print("|---|---|---:|---:|---:|---:|")
    for size in sizes:
        gains = []
        for case in cases:
            sides = {"plain": our_step(case, size), "compiled": our_step(case, size, compiled=True)}
            began = time.perf_counter()
            sides["compiled"]()
            first = time.perf_counter() - began
            times = in_turn(sides, repeats)
            plain, compiled = (1e3 * statistics.median(seen) for seen in times.values())
            gains.append(statistics.median(ratios(times["plain"], times["compiled"])))
            row = f"{plain:.2f} | {compiled:.2f} | {gains[-1]:.2f} | {first:.0f} s"
            print(f"| {size} | {case.name} | {row} |", flush=True)
        print(f"| {size} | geometric mean | | | **{geometric_mean(gains):.2f}** | |")


def batch_all_memory() -> float:
    """Megabytes the resident size grows by for batch-all triplets at b=1024, D=512."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(1024, 512, generator=generator, requires_grad=True)
    labels = torch.arange(256).repeat_interleave(4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    registry.create("losses", "triplet")(embeddings, labels).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--size", choices=list(SIZES), help="one batch size only")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--profile", action="store_true", help="our steps beside the limit")
    parser.add_argument("--compile", action="store_true", help="our steps beside torch.compile's")
    parser.add_argument("--rows", type=Path, help="the geometric mean goes into this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, pytorch-metric-learning {pml.__version__}, one thread")
    cases = [case for case in CASES if options.only in case.name]
    sizes = [options.size] if options.size else list(SIZES)
    if options.profile:
        profile(cases, sizes)
        return
    if options.compile:
        if shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
            parser.exit(2, f"--compile needs a C++ compiler, no {compiler} here: install g++\n")
        beside_compiled(cases, sizes, options.repeats)
        return
    if not options.only and not options.size:
        print(f"batch-all triplets, b=1024 D=512: {batch_all_memory():.0f} MB extra\n")
    print("| step | " + " | ".join(f"{s} ours | peer | ratio" for s in sizes) + " |")
    print("|---|" + "---:|" * (3 * len(sizes)))
    result: dict[str, list[tuple[float, float, float]]] = {size: [] for size in sizes}
    peers: dict[str, list[float]] = {size: [] for size in sizes}
    for case in cases:
        cells = []
        for size in sizes:
            times = compare(case, size, options.repeats)
            seen = middle(ratios(times["peer"], times["ours"]))
            if "wrong" not in case.name:
                result[size].append(seen)
                peers[size].append(statistics.median(times["peer"]))
            ours, theirs = (1e3 * statistics.median(times[side]) for side in ("ours", "peer"))
            cells.append(f"{ours:.2f} ms | {theirs:.1f} ms | {seen[0]:.1f}")
        print(f"| {case.name} | " + " | ".join(cells) + " |", flush=True)
    means = {
        size: [geometric_mean(kind) for kind in zip(*result[size], strict=True)] for size in sizes
    }
    shown = " | ".join(f" | | **{means[size][0]:.1f}**" for size in sizes)
    print(f"| geometric mean | {shown} |")
    if not options.only:
        work = "losses and miners, {}, geometric mean of 19 steps"
        for size in sizes:
            most = geometric_mean(peers[size]) / limit(size)
            message = f"{most:.3g} times: two products and a softmax alone"
            row = Row(work.format(size), "PML", *means[size], goal=GOALS[size], limit=message)
            add_rows(options.rows, row)


if __name__ == "__main__":
    main()

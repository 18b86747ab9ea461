"""Losses and miners against pytorch-metric-learning: one process, one thread, interleaved, medians.

    python benchmarks/losses.py [--repeats 30] [--only lifted]

A step is miner + loss + backward, on the same embeddings and the same definition on both sides. The
machine may be noisy: each repeat runs our step and the peer's one after the other, and the ratio of
the medians is what counts. `smooth_ap` of the peer is wrong for most batch shapes (it is only
timed).
"""

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytorch_metric_learning as pml
import torch
from pytorch_metric_learning import distances, miners
from pytorch_metric_learning import losses as peer
from torch import Tensor

from unseen import catalogue

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
        {"negatives": "positives", "normalise": True, "nu": 0.0},
        ONE_PAIR_PER_CLASS,
        # the peer's loss takes the first pair of each class by itself; our miner draws one
        lambda c: peer.NPairsLoss(),
    ),
    Case("supcon", "supcon", {}, None, lambda c: peer.SupConLoss(0.1)),
    Case("circle", "circle", {}, None, lambda c: peer.CircleLoss(0.4, 80)),
    Case("smooth-AP (peer wrong)", "smooth_ap", {}, None, lambda c: peer.SmoothAPLoss(0.01)),
]
SIZES = {"b=112": (112, 2, 100), "b=512": (512, 4, 1000)}  # batch, images per class, classes


def batch(size: int, per_class: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(classes, generator=generator)[: size // per_class]
    labels = chosen.repeat_interleave(per_class)
    centres = torch.randn(classes, D, generator=generator)
    embeddings = centres[labels] + 2.0 * torch.randn(size, D, generator=generator)
    # of unit length: the peer's angular loss leaves its negatives as they are
    return torch.nn.functional.normalize(embeddings), labels


def step(loss: Any, miner: Any, embeddings: Tensor, labels: Tensor) -> float:
    """Seconds of one step."""
    leaf = embeddings.clone().requires_grad_()
    began = time.perf_counter()
    mined = None if miner is None else miner(leaf, labels)
    loss(leaf, labels, mined).backward()
    return time.perf_counter() - began


def compare(case: Case, size: str, repeats: int) -> tuple[float, float]:
    """Median milliseconds of a step: ours, the peer's."""
    b, per_class, classes = SIZES[size]
    embeddings, labels = batch(b, per_class, classes)
    ours = catalogue.create("losses", case.loss, case.values, num_classes=classes, embedding_size=D)
    theirs = case.peer_loss(classes)
    our_miner = case.miner and catalogue.create("miners", case.miner[0], case.miner[1])
    their_miner = case.peer_miner and case.peer_miner()
    times: tuple[list[float], list[float]] = ([], [])
    slow = step(theirs, their_miner, embeddings, labels)  # also warms up
    step(ours, our_miner, embeddings, labels)
    for _ in range(max(3, min(repeats, int(20 / max(slow, 1e-3))))):
        times[0].append(step(ours, our_miner, embeddings, labels))
        times[1].append(step(theirs, their_miner, embeddings, labels))
    return 1e3 * statistics.median(times[0]), 1e3 * statistics.median(times[1])


def batch_all_memory() -> float:
    """Megabytes the resident size grows by for batch-all triplets at b=1024, D=512."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(1024, 512, generator=generator, requires_grad=True)
    labels = torch.arange(256).repeat_interleave(4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    catalogue.create("losses", "triplet")(embeddings, labels).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, pytorch-metric-learning {pml.__version__}, one thread")
    if not options.only:
        print(f"batch-all triplets, b=1024 D=512: {batch_all_memory():.0f} MB extra\n")
    cases = [case for case in CASES if options.only in case.name]
    print("| step | " + " | ".join(f"{s} ours | peer | ratio" for s in SIZES) + " |")
    print("|---|" + "---:|" * (3 * len(SIZES)))
    ratios: dict[str, list[float]] = {size: [] for size in SIZES}
    for case in cases:
        cells = []
        for size in SIZES:
            ours, theirs = compare(case, size, options.repeats)
            if "wrong" not in case.name:
                ratios[size].append(theirs / ours)
            cells.append(f"{ours:.2f} ms | {theirs:.1f} ms | {theirs / ours:.1f}")
        print(f"| {case.name} | " + " | ".join(cells) + " |", flush=True)
    means = [math.exp(statistics.mean(map(math.log, ratios[size]))) for size in SIZES]
    shown = " | ".join(f" | | **{mean:.1f}**" for mean in means)
    print(f"| geometric mean | {shown} |")


if __name__ == "__main__":
    main()

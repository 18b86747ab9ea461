"""A step with very many classes: drawn class centres on two processes against all of them.

    python benchmarks/many_classes.py [--loss arcface] [--classes 1000000] [--few 100000]

A step is a linear layer of 128, the loss on 512 embeddings, its gradient and AdamW. Each row runs
in processes of its own, one thread each, that keep memory as `unseen train` does: the plain loss
and that of pytorch-metric-learning in one process with `few` classes, drawn centres (rate 0.1) in
one process with as many and in two with `classes`. Seconds of the wall clock and of the processor
(all processes), median of the steps after the first; memory is the peak of a process above what it
held before the loss was made.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from pytorch_metric_learning import losses as peer
from torch import Tensor, nn

from unseen.core import registry
from unseen.core.contracts import Network, Output
from unseen.runs.cpu_processes import KEEPING
from unseen.training.distributed import Processes, joined_here
from unseen.training.gradients import WholeBatch
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import SHARDED, ScheduledOptimizer, constant

D, BATCH, RATE = 128, 512, 0.1
PEERS: dict[str, Callable[[int], nn.Module]] = {
    "arcface": lambda classes: peer.ArcFaceLoss(classes, D),
    "normalized_softmax": lambda classes: peer.NormalizedSoftmaxLoss(classes, D),
    "proxy_anchor": lambda classes: peer.ProxyAnchorLoss(classes, D),
}


class Linear(Network):
    """Features to embeddings."""

    embedding_size = D

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, images: Tensor) -> Output:
        return Output(self.layer(images), images)


def stepping(loss: nn.Module, processes: Processes) -> Callable[[int], None]:
    """A whole step of our training, given its number."""
    step = WholeBatch(Linear(), MinedObjective(loss), processes)
    sharded = bool(step.objective.sharded())
    groups: list[dict[str, Any]] = [{"params": list(step.network.parameters())}]
    groups += [group | {SHARDED: sharded} for group in step.objective.parameter_groups(1e-3)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    scheduled_optimizer = ScheduledOptimizer(optimizer, constant(), processes=processes)
    own = processes.fraction(BATCH)

    def run(number: int) -> None:
        features, labels = batch(number, loss.num_classes)  # type: ignore[arg-type]
        scheduled_optimizer.zero()
        step(features[own], labels[own], torch.arange(BATCH)[own], number)
        scheduled_optimizer.step(number)

    return run


def stepping_of_peer(loss: nn.Module, classes: int) -> Callable[[int], None]:
    network = Linear()
    optimizer = torch.optim.AdamW([*network.parameters(), *loss.parameters()], lr=1e-3)

    def run(number: int) -> None:
        features, labels = batch(number, classes)
        optimizer.zero_grad()
        loss(network(features).embeddings, labels).backward()
        optimizer.step()

    return run


def batch(number: int, classes: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(number)
    features = torch.randn(BATCH, D, generator=draw)
    return features, torch.randint(classes, (BATCH // 4,), generator=draw).repeat_interleave(4)


def memory() -> float:
    """Peak so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(words: argparse.Namespace) -> None:
    """One process of a row; prints what it found."""
    torch.set_num_threads(1)
    several = joined_here(words.meeting / "meeting", words.rank, words.count)
    with several if words.count > 1 else nullcontext(Processes()) as processes:
        warm = stepping(
            registry.create("losses", words.loss, num_classes=9, embedding_size=D), Processes()
        )
        warm(0)
        before = memory()
        if words.side == "peer":
            run = stepping_of_peer(PEERS[words.loss](words.classes), words.classes)
        else:
            given = {"sample_rate": RATE} if words.side == "drawn" else {}
            context = {"num_classes": words.classes, "embedding_size": D, "shards": processes}
            run = stepping(registry.create("losses", words.loss, given, **context), processes)
        walls, own = [], []
        for number in range(words.steps):
            began, busy = time.perf_counter(), time.process_time()
            run(number)
            walls.append(time.perf_counter() - began)
            own.append(time.process_time() - busy)
    result = [statistics.median(walls[1:]), statistics.median(own[1:]), memory() - before]
    print(json.dumps(result))


def row(side: str, loss: str, classes: int, count: int, steps: int) -> list[float]:
    """Wall and processor seconds a step, and the largest peak of a process."""
    with tempfile.TemporaryDirectory() as meeting:
        command = [sys.executable, __file__, "--side", side, "--loss", loss, "--meeting", meeting]
        command += ["--classes", str(classes), "--count", str(count), "--steps", str(steps)]
        running = [
            subprocess.Popen(
                [*command, "--rank", str(rank)],
                stdout=subprocess.PIPE,
                env=os.environ | KEEPING | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(count)
        ]
        result = [json.loads(process.communicate()[0]) for process in running]
    walls, own, peaks = zip(*result, strict=True)
    return [max(walls), sum(own), max(peaks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loss", choices=list(PEERS), default="arcface")
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--side", choices=["plain", "peer", "drawn"], help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.side is not None:
        work(words)
        return
    rows = [
        ("pytorch-metric-learning", "peer", words.few, 1),
        ("plain", "plain", words.few, 1),
        (f"drawn, rate {RATE}", "drawn", words.few, 1),
        (f"drawn, rate {RATE}", "drawn", words.classes, 2),
    ]
    print(f"{words.loss}, {D} numbers, batch {BATCH}")
    for name, side, classes, count in rows:
        wall, own, peak = row(side, words.loss, classes, count, words.steps)
        print(
            f"  {name:24} {classes:>9,} classes  {count} processes  {wall:6.2f} s a step  "
            f"{own:6.2f} s of the processor  {peak:6,.0f} MB a process"
        )


if __name__ == "__main__":
    main()

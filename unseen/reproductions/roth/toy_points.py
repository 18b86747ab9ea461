"""Two-dimensional toy data: what switching does to an embedding that can be drawn.

Paper    K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, figures 6 and 11
Data     `diagonal`: four training classes one after another on the line y = x; test classes on two
         lines across it. `vertical`: four training lines side by side, test classes along a fifth
         (the paper gives no coordinates for these; ours are below). 15 points a class.
Network  2 - 30 - ReLU - 30 - ReLU - 2, unit length; Adam at 0.03, 200 steps, batches of 24 of the
         60 points, all triplets of a batch.
Loss     mean of d(a, p) + mean of [0.1 - d(a, n)]+.

Three variants: `base`; `switch`, the rho switch with a chance per triplet as the paper describes
it; `paper_code`, what the released code does when its chance is above 0: it also drops the first
term. The published image is that of `paper_code`; switching alone hardly changes the spectrum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unseen.core.geometry import unit
from unseen.core.tuples import Triplets, all_triplets
from unseen.losses.contrastive import ContrastiveLoss
from unseen.miners.base import TripletMiner

DATA = ("diagonal", "vertical")
CONFIGURATIONS = ("base", "switch", "paper_code")
MARGIN, STEPS, BATCH, PER_CLASS = 0.1, 200, 24, 15
CODE_CHANCE = 0.001  # the released toy script's


@dataclass(frozen=True)
class ToyData:
    """Points of four training and four test classes, 15 each."""

    train: Tensor  # [60, 2]
    test: Tensor  # [60, 2]
    labels: Tensor  # [60], the same for both


@dataclass(frozen=True)
class ToyRun:
    """Where a trained network puts the points, and what that amounts to."""

    data: ToyData
    train: Tensor  # [60, 2] on the unit circle
    test: Tensor  # [60, 2]
    fractions: Tensor  # [2] singular values of the training embeddings over their sum
    decay: float  # KL(uniform || shares)
    separation: float  # the smallest distance between the means of two test classes


def make_data(name: str, seed: int) -> ToyData:
    """15 of 100 equally spaced points on each class's segment."""
    if name not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}, got {name!r}")
    generator = torch.Generator().manual_seed(seed)
    if name == "diagonal":
        seen = [((a, a), (a + 0.2, a + 0.2)) for a in (0.1, 0.35, 0.6, 0.85)]
        new = [((0.2, a), (0.2, b)) for a, b in ((0.2, 0.4), (0.55, 0.85))]
        new += [((a, 0.2), (b, 0.2)) for a, b in ((0.4, 0.6), (0.7, 0.9))]
    else:
        seen = [((x, 0.1), (x, 0.9)) for x in (0.2, 0.4, 0.6, 0.8)]
        new = [((0.5, a), (0.5, a + 0.15)) for a in (0.1, 0.35, 0.6, 0.85)]
    labels = torch.arange(4).repeat_interleave(PER_CLASS)
    return ToyData(_points(seen, generator), _points(new, generator), labels)


def train(data: ToyData, configuration: str, chance: float, seed: int) -> ToyRun:
    """One run; `chance` is that of a switch per triplet, for the variants that switch."""
    if configuration not in CONFIGURATIONS:
        raise ValueError(
            f"variant must be one of {', '.join(CONFIGURATIONS)}, got {configuration!r}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2)
        )
    generator = torch.Generator().manual_seed(seed + 1)
    miner = _Every(0.0 if configuration == "base" else chance, seed)
    loss = ContrastiveLoss(neg_margin=MARGIN)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(STEPS):
        chosen = torch.randperm(len(data.labels), generator=generator)[:BATCH]
        embeddings, labels = network(data.train[chosen]), data.labels[chosen]
        mined = miner(embeddings, labels)
        assert isinstance(mined, Triplets)
        optimizer.zero_grad()
        if configuration == "paper_code":
            cost = _push(embeddings, mined)
        else:
            cost = loss(embeddings, labels, mined)
        cost.backward()
        optimizer.step()
    with torch.no_grad():
        return measure(data, unit(network(data.train)), unit(network(data.test)))


def measure(data: ToyData, train_points: Tensor, test_points: Tensor) -> ToyRun:
    """Spectrum of the training embeddings, and how far test classes are apart."""
    values = torch.linalg.svdvals(train_points.double())
    fractions = values / values.sum()
    decay = -(fractions.clamp(min=1e-12).log().mean() + torch.tensor(2.0).log()).item()
    means = test_points.view(4, PER_CLASS, 2).mean(dim=1)
    apart = torch.pdist(means).min().item()
    return ToyRun(data, train_points, test_points, fractions, decay, apart)


class _Every(TripletMiner):
    """All triplets of a batch, some of them switched."""

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        return all_triplets(pos, neg)


def _push(embeddings: Tensor, mined: Triplets) -> Tensor:
    """The second term alone."""
    rows = unit(embeddings)
    squares = (rows[mined.anchor] - rows[mined.negative]).square().sum(dim=1)
    return (MARGIN - squares.clamp(min=1e-8).sqrt()).clamp(min=0).mean()


Segment = tuple[tuple[float, float], tuple[float, float]]


def _points(segments: list[Segment], generator: torch.Generator) -> Tensor:  # [60, 2]
    along = torch.linspace(0, 1, 100)[:, None]  # [100, 1]
    parts = []
    for start, stop in segments:
        line = torch.lerp(torch.tensor(start), torch.tensor(stop), along)  # [100, 2]
        parts.append(line[torch.randperm(100, generator=generator)[:PER_CLASS]])
    return torch.cat(parts)

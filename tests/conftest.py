"""One thread and one cache for all, a narrow network for whole runs, and the fixed batches that
numeric checks of losses and miners use."""

import math
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.relevance import GradedPairs, KnownPairs, Labels, LabelSets, Levels, Relevance
from unseen.tuples import Triplets


def on_circle(*degrees: float) -> Tensor:
    angle = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([angle.cos(), angle.sin()], dim=1)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small kernels are faster so, and two workers do not fight for two cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_flushes() -> Iterator[None]:
    """No test cuts the power: what a killed process wrote is there without a flush of the disk,
    which takes milliseconds each time. Tests of flushing count calls of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written to the user's cache, and characters are drawn once per worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def narrow_network() -> Iterator[None]:
    """The built-in network with a quarter of its channels, for files whose runs are about
    everything but its size."""
    from unseen.networks.small_conv import SmallConv  # here: single methods need no network

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SmallConv, "num_features", 64)
        yield


@pytest.fixture(autouse=True)
def _same_starting_values() -> None:
    """Layers made in a test draw from torch's global generator: the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def kinds() -> Callable[[Tensor], dict[str, Relevance]]:
    """Of items with these classes [n], every kind of relevance by its name. Labels and levels say
    what the classes say; of the others each says something else."""

    def make(classes: Tensor) -> dict[str, Relevance]:
        own, number = classes.numpy(), len(classes)
        every = np.array([(i, j) for i in range(number) for j in range(i)])
        same = own[every[:, 0]] == own[every[:, 1]]
        known, near = every.sum(axis=1) % 3 > 0, every.sum(axis=1) % 5 == 0
        second = np.where(np.arange(number) % 3, own.max() + 1 + np.arange(number) % 2, -1)
        graded = every[same | near], np.where(near, 0.2, 1.0)[same | near]
        made: list[Relevance] = [
            Labels(own),
            Levels(np.stack([own // 2, own], axis=1), 2),
            LabelSets(np.stack([own, second], axis=1)),
            KnownPairs(every[known], same[known], number),
            GradedPairs(*graded, number),
        ]
        return {relevance.kind: relevance.divided(own) for relevance in made}

    return make


@pytest.fixture
def spec() -> SimpleNamespace:
    """T: six unit vectors of three classes. U: the same directions, other norms. PX, PX4: proxies.
    CT: two centres per class. TR: one triplet per anchor of T. COL: collapsed. ORT: ideal."""
    T = on_circle(0, 25, 65, 128, 200, 262)
    norms = torch.tensor([1, 2, 1.5, 0.5, 1, 2], dtype=torch.float64)
    triplets = torch.tensor([(0, 1, 2), (1, 0, 2), (2, 3, 1), (3, 2, 4), (4, 5, 3), (5, 4, 0)])
    return SimpleNamespace(
        T=T,
        U=T * norms[:, None],
        labels=torch.tensor([0, 0, 1, 1, 2, 2]),
        PX=on_circle(15, 90, 235),
        PX4=on_circle(15, 90, 235, 330),
        CT=on_circle(0, 40, 50, 110, 190, 260).view(3, 2, 2),
        TR=Triplets(*triplets.T),
        COL=on_circle(30).repeat(6, 1),
        ORT=torch.eye(3, dtype=torch.float64).repeat_interleave(2, dim=0),
    )

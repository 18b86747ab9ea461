"""A slow, obvious ranking for every retrieval metric: sort everything, in float64, with loops."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Neighbors
from unseen.core.relevance import LabelSets, Levels, Related
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.base import OpenAnswers

Rows = list[tuple[float, bool, bool, int]]


def rank_everything(x: Tensor, y: Tensor, normalize: bool = True) -> list[list[bool]]:
    """For each query: is the r-th neighbour right? Ties on the grid go to the wrong ones."""
    x = x.double()
    spread = float((x - x.mean(0)).square().sum(1).max())
    if normalize:
        x = x / x.norm(dim=1, keepdim=True).clamp(min=1e-300)
    grid = 2.0**-20 if normalize else 2.0**-28 * spread + 1e-300
    rankings = []
    for i in range(len(x)):
        others = []
        for j in range(len(x)):
            if i != j:
                sim = (x[i] * x[j]).sum() if normalize else -(x[i] - x[j]).square().sum()
                others.append((-round(float(sim) / grid), bool(y[i] == y[j]), j))
        rankings.append([right for _, right, _ in sorted(others)])
    return rankings


@pytest.fixture(scope="session")
def messy() -> list[tuple[Tensor, Tensor, list[list[bool]]]]:
    """Embeddings with ties, copies and single-image classes, their labels and full rankings."""
    generator = torch.Generator().manual_seed(7)
    cases = []
    for case in range(8):
        n, size = 20 + 7 * case, 1 + case % 4
        x = torch.randn(n, size, generator=generator)
        if case % 2:  # a lattice: directions and distances coincide a lot
            x = torch.randint(-2, 3, (n, size), generator=generator).float()
        x[n // 2 : n // 2 + n // 4] = x[: n // 4]
        y = torch.randint(0, n // 4, (n,), generator=generator) + 2**41
        y[-1] = -5
        cases.append((x, y, rank_everything(x, y)))
    return cases


@pytest.fixture(scope="session")
def line() -> Neighbors:
    """The small case of the specification: six points on a line, two classes of three."""
    x = torch.tensor([0, 1, 2.5, 4.5, 5.2, 7.1])[:, None]
    y = torch.tensor([0, 0, 1, 0, 1, 1])
    return retrieve(x, y, 5, normalize=False, ranks=True)


@pytest.fixture(scope="session")
def open_answers() -> Callable[..., tuple[OpenAnswers, Rows]]:
    """Answers of an open set with ties; and similarity, right, known, label of each query."""

    def made(seed: int, threshold: float = math.nan) -> tuple[OpenAnswers, Rows]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 8, (60,), generator=generator) + 2**41
        known = labels % 2 == 0
        similarities = torch.randint(-5, 6, (60,), generator=generator).double() / 8 + known / 4
        right = known & (torch.rand(60, generator=generator) < 0.7)
        columns = (similarities, right, known, labels)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        return OpenAnswers(*columns, threshold), rows

    return made


@pytest.fixture(params=["levels", "label sets"])
def graded(request: pytest.FixtureRequest) -> tuple[Tensor, Related]:
    """Embeddings without ties, and items that are more or less the same."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 6, generator=generator)
    fine = torch.randint(0, 8, (24,), generator=generator).numpy()
    if request.param == "levels":
        levels = Levels(np.stack([fine // 4, fine // 2, fine], axis=1), 3)
        return x, levels.sharded(fine).of(torch.arange(24))
    sets = np.stack([fine, np.where(fine > 2, 8 + fine // 2, -1)], axis=1)
    return x, LabelSets(sets).of(torch.arange(24))

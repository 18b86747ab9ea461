"""Rows with a gradient move as a parameter of their own would; the others do not move at all."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unseen.training.optimizers import ScheduledOptimizer, constant, touched_rows

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.1, weight_decay=0.2),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.1, weight_decay=0.2),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.2),
}


def start(rows: int = 6) -> Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def step(optimizer: torch.optim.Optimizer, weight: nn.Parameter, rows: list[int]) -> None:
    optimizer.zero_grad()
    here = F.embedding(torch.tensor(rows), weight, sparse=True)
    here.pow(2).mul(torch.arange(1.0, 4.0)).sum().backward()
    with touched_rows(optimizer):
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_all_rows_touched_is_the_plain_step(name: str) -> None:
    sparse, dense = nn.Parameter(start()), nn.Parameter(start())
    rare, plain = OPTIMIZERS[name]([sparse]), OPTIMIZERS[name]([dense])
    for _ in range(4):
        step(rare, sparse, [3, 0, 5, 1, 2, 4])
        plain.zero_grad()
        dense.pow(2).mul(torch.arange(1.0, 4.0)).sum().backward()
        plain.step()
        torch.testing.assert_close(sparse.data, dense.data, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_untouched_rows_and_their_state_rest(name: str) -> None:
    weight = nn.Parameter(start())
    optimizer = OPTIMIZERS[name]([weight])
    step(optimizer, weight, [0, 1, 4])
    before = weight.detach().clone()
    kept = {n: v.clone() for n, v in optimizer.state[weight].items() if v is not None}
    step(optimizer, weight, [1, 5, 1])
    rest, moved = [0, 2, 3, 4], [1, 5]
    assert torch.equal(weight[rest], before[rest])
    assert (weight[moved] != before[moved]).all()
    for name_of, value in kept.items():
        if value.ndim == 2:
            now = optimizer.state[weight][name_of]
            assert torch.equal(now[rest], value[rest])
            assert (now[moved] != value[moved]).all()
    assert optimizer.param_groups[0]["params"] == [weight]


def test_the_state_goes_through_a_file() -> None:
    weights = [nn.Parameter(start()) for _ in range(2)]
    one, two = (OPTIMIZERS["adamw"]([weight]) for weight in weights)
    step(one, weights[0], [0, 1])
    two.load_state_dict(deepcopy(one.state_dict()))
    weights[1].data.copy_(weights[0].data)
    for optimizer, weight in ((one, weights[0]), (two, weights[1])):
        step(optimizer, weight, [1, 2])
    assert torch.equal(*(weight.data for weight in weights))


def test_a_step_clips_all_gradients_together() -> None:
    """|(3, 4)| of a dense and a sparse gradient is cut to 1; a row named twice counts once."""
    dense, sparse = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(3, 1))
    optimizer = torch.optim.SGD([dense, sparse], lr=1.0)
    scheduled_optimizer = ScheduledOptimizer(optimizer, constant(), clip_norm=1.0)
    (3 * dense.sum() + 2 * F.embedding(torch.tensor([1, 1]), sparse, sparse=True).sum()).backward()
    assert scheduled_optimizer.step(0) == pytest.approx(5.0)
    torch.testing.assert_close(dense.data, torch.tensor([-0.6]))
    torch.testing.assert_close(sparse.data[:, 0], torch.tensor([0.0, -0.8, 0.0]))

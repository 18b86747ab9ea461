"""What exact retrieval costs, said before it starts.

multiply-adds   n^2 D / 2 among n items, Q G D with a gallery: twice the items, four times the time
seconds         from the rate of one product of that width, measured on this machine, in integers if
                the first pass is in them; selection and sorting come on top, more of it the
                smaller D and the longer the lists
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.neighbors.certified import pays

ROWS, TRIES = 2048, 4


@dataclass(frozen=True)
class Cost:
    """Of one exact retrieval."""

    multiply_adds: float
    seconds: float

    def __str__(self) -> str:
        minutes = self.seconds / 60
        time_ = f"{minutes:.0f} minutes" if minutes >= 2 else f"{self.seconds:.0f} seconds"
        return (
            f"{self.multiply_adds:.1e} multiply-adds, at least {time_} on this machine; twice the "
            "items take four times as long"
        )


def cost(num_queries: int, size: int, num_items: int | None = None) -> Cost:
    """Of `num_queries` against each other, or against a gallery of `num_items`."""
    pairs = num_queries**2 / 2 if num_items is None else num_queries * num_items
    multiply_adds = pairs * size
    return Cost(float(multiply_adds), multiply_adds * _seconds_per_multiply_add(size))


def _seconds_per_multiply_add(size: int) -> float:
    """The best of a few products: others may be using the machine at the moment."""
    x, times = torch.ones(ROWS, size), []
    multiply: Callable[..., Tensor] = torch.mm
    if pays(x):
        x, multiply = x.to(torch.int8), torch._int_mm
    for _ in range(TRIES):
        began = time.perf_counter()
        multiply(x, x.T)
        times.append(time.perf_counter() - began)
    return min(times) / (ROWS * ROWS * size)

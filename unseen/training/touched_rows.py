"""An optimiser's step that touches only the rows of a parameter that have a gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def touched_rows(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """In the block parameters with sparse gradients are their touched rows, with dense ones.

        with touched_rows(optimiser):
            optimiser.step()

    A parameter with a sparse gradient (of rows: `F.embedding(..., sparse=True)`) is replaced by
    those rows while the block runs, and so is its state: any optimiser of torch moves and decays
    them as it would a parameter of that size. The other rows and their state stay as they are (X.
    An et al., Partial FC, https://arxiv.org/abs/2203.15565); the count of steps is the parameter's.
    """
    replaced = []
    for group in optimizer.param_groups:
        for place, whole in enumerate(group["params"]):
            if whole.grad is not None and whole.grad.is_sparse:
                gradient = whole.grad.coalesce()
                rows = gradient.indices()[0]
                touched = nn.Parameter(whole.detach().index_select(0, rows))
                touched.grad = gradient.values()
                state = optimizer.state.pop(whole, {})
                if state:
                    optimizer.state[touched] = _rows_of(state, whole, rows)
                group["params"][place] = touched
                replaced.append((group["params"], place, whole, touched, rows, state))
    try:
        yield
    finally:
        for params, place, whole, touched, rows, state in replaced:
            params[place] = whole
            moved = optimizer.state.pop(touched, {})
            if moved:
                optimizer.state[whole] = _with_rows(state, moved, whole, rows)
            with torch.no_grad():
                whole.index_copy_(0, rows, touched)


def _rows_of(state: dict[str, Any], whole: Tensor, rows: Tensor) -> dict[str, Any]:
    return {
        name: value.index_select(0, rows) if _is_by_row(value, whole) else value
        for name, value in state.items()
    }


def _with_rows(
    state: dict[str, Any], moved: dict[str, Any], whole: Tensor, rows: Tensor
) -> dict[str, Any]:
    """The state of all rows; of those never touched it is 0."""
    for name, value in moved.items():
        if _is_by_row(value, whole):
            state.setdefault(name, torch.zeros_like(whole)).index_copy_(0, rows, value)
        else:
            state[name] = value
    return state


def _is_by_row(value: Any, whole: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim == whole.ndim

"""Selecting in and sorting the rows of a matrix. On a CPU NumPy does it, which uses wider vector
instructions and is several times as fast as torch; a value and its column are sorted as one
integer."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = np.int64(2**31 - 1)
LOW = np.int64(2**32 - 1)  # the half of a key that holds the column


def above(block: Tensor, bar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of the entries of a block [R, C] above their row's bar [R], by row.

    The block may be a transposed view: the comparison is transposed then, a quarter of its size.
    """
    if block.device.type != "cpu":
        row, column = (block > bar[:, None]).nonzero(as_tuple=True)
        return row, column, block[row, column]
    clears = torch.from_numpy(block.numpy() > bar.numpy()[:, None]).contiguous()
    places = np.divmod(np.flatnonzero(clears.numpy()), block.shape[1])
    row, column = map(torch.from_numpy, places)
    return row, column, torch.from_numpy(block.numpy()[places])


def kth_largest(values: Tensor, k: int) -> Tensor:  # [R]
    """Of each row [R, C]."""
    if values.device.type != "cpu":
        return values.topk(k, dim=1, sorted=False).values.amin(dim=1)
    place = values.shape[1] - k
    return torch.from_numpy(np.partition(values.numpy(), place, axis=1)[:, place].copy())


def in_order(values: Tensor, columns: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The first `keep` of each row [R, C] by falling value, equals by rising column (int32)."""
    if values.device.type == "cpu" and values.dtype == torch.float32:
        keys = _keys(values.numpy(), columns.numpy())
        keys.sort(axis=1)
        keys = keys[:, : -keep - 1 : -1]
        bits = _monotone((keys >> 32).astype(np.int32))
        columns_ = (LARGEST - (keys & LOW)).astype(np.int32)
        return torch.from_numpy(bits.view(np.float32)), torch.from_numpy(columns_)
    columns, order = columns.sort(dim=1)
    values, order_ = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :keep], columns.gather(1, order_[:, :keep])


def _keys(values: NDArray[np.float32], columns: NDArray[np.int32]) -> NDArray[np.int64]:
    """Integers in the order wanted: the value's bits above, the column, counted down, below."""
    bits = (values + np.float32(0)).view(np.int32)  # no zero is negative
    keys = _monotone(bits).astype(np.int64)
    keys <<= 32  # in place: fresh memory costs more than the arithmetic
    keys += LARGEST
    keys -= columns
    return keys


def _monotone(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of floats as integers of the same order; applied twice, the bits again."""
    return bits ^ ((bits >> 31) & np.int32(2**31 - 1))

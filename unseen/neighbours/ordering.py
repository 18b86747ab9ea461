"""Sorting the rows of a matrix. On a CPU NumPy does it, whose sorts use wide vector instructions
and are several times as fast as torch's; a value and its column are sorted as one integer."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = np.int64(2**31 - 1)
LOW = np.int64(2**32 - 1)  # the half of a key that holds the column


def kth_largest(values: Tensor, k: int) -> Tensor:  # [R]
    """Of each row [R, C]."""
    if values.device.type != "cpu":
        return values.topk(k, dim=1, sorted=False).values.amin(dim=1)
    return torch.from_numpy(np.sort(values.numpy(), axis=1)[:, -k].copy())


def in_order(values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:  # two [R, C]
    """Rows by falling value, equals by rising column (int32)."""
    if values.device.type == "cpu" and values.dtype == torch.float32:
        keys = np.sort(_keys(values.numpy(), columns.numpy()), axis=1)[:, ::-1]
        bits, columns_ = _monotone((keys >> 32).astype(np.int32)), LARGEST - (keys & LOW)
        return torch.from_numpy(bits.view(np.float32)), torch.from_numpy(columns_.astype(np.int32))
    columns, order = columns.sort(dim=1)
    values, order_ = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order_)


def _keys(values: NDArray[np.float32], columns: NDArray[np.int32]) -> NDArray[np.int64]:
    """Integers in the order wanted: the value's bits above, the column, counted down, below."""
    bits = np.ascontiguousarray(values + np.float32(0)).view(np.int32)  # no zero is negative
    keys: NDArray[np.int64] = (_monotone(bits).astype(np.int64) << 32) | (LARGEST - columns)
    return keys


def _monotone(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of floats as integers of the same order; applied twice, the bits again."""
    return bits ^ ((bits >> 31) & np.int32(2**31 - 1))

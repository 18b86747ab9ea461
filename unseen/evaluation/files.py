"""Embeddings and labels of any model, from NumPy files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def read_embeddings(path: Path) -> Tensor:  # [n, D]
    """A matrix of numbers, one row per item."""
    array = _read(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{path} must hold a matrix of numbers [items, size], got {array.dtype} of shape "
            f"{list(array.shape)}"
        )
    return torch.from_numpy(array.astype(np.float64 if array.itemsize > 4 else np.float32))


def read_labels(paths: Sequence[Path]) -> list[Tensor]:  # each [n] int64
    """Labels of several files, integers or strings; the same label is the same class in all."""
    arrays = [_read(path) for path in paths]
    for path, array in zip(paths, arrays, strict=True):
        if array.ndim != 1 or array.dtype.kind not in "iuUS":
            raise ValueError(
                f"{path} must hold integers or strings [items], got {array.dtype} of shape "
                f"{list(array.shape)}"
            )
    _, codes = np.unique(np.concatenate(arrays), return_inverse=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return [torch.from_numpy(part.astype(np.int64)) for part in np.split(codes, ends)]


def _read(path: Path) -> NDArray[Any]:
    """One array; what a pickle could do is refused."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no NumPy file of numbers or strings (.npy)") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} must hold one array (.npy), got several ({', '.join(array)})")
    return array

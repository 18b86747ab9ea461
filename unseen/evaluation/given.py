"""Embeddings and labels of any model, as people have them.

values    tensors, arrays, lists; labels are integers or words, the same in queries and gallery
files     .npy    a matrix [items, size], or labels [items]
          .npz    `vectors`, `embeddings` or `features`, and perhaps `labels`: what `unseen embed`
                  and `unseen features` write
          .csv, .tsv, .parquet    a column of numbers for each dimension, or one of lists, and
                  perhaps `label`; `path` and `id` are passed over
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unseen.data.pictures import table_file
from unseen.relevance import Related

VECTORS = ("vectors", "embeddings", "features")
LABELS = ("labels", "label")
_PASSED_OVER = frozenset({"path", "paths", "id"})
Given = Tensor | ArrayLike
GivenLabels = Given | Related | Mapping[str, Given | Related]


@dataclass(frozen=True)
class Items:
    """What a file holds."""

    embeddings: NDArray[Any]  # [n, D]
    labels: NDArray[Any] | None  # [n], integers or words


def as_matrix(values: Given, name: str = "embeddings") -> Tensor:  # [n, D]
    """Tensors stay what they are; anything else becomes float32, or float64 where it was."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a matrix of numbers [items, size], got {_what(array)}")
    return torch.from_numpy(array.astype(np.float64 if array.itemsize > 4 else np.float32))


def as_labels(*columns: GivenLabels | None) -> list[Any]:
    """Each as int64; words, and integers that are no tensors, are numbered in all of them alike.
    A mapping of columns stays one."""
    given = [column for column in columns if column is not None]
    if any(isinstance(column, Mapping) for column in given):
        return _by_name(columns)
    if all(isinstance(column, Tensor | Related) for column in given):
        return list(columns)
    arrays = [np.asarray(column) for column in given]
    for array in arrays:
        if array.ndim != 1 or array.dtype.kind not in "iuUSb":
            raise ValueError(f"labels must be integers or words [items], got {_what(array)}")
    kinds = {"i" if array.dtype.kind in "iub" else "U" for array in arrays}
    if len(kinds) > 1:
        raise ValueError("labels and gallery_labels must both be numbers or both be words")
    coded = arrays
    if kinds == {"U"}:
        _, codes = np.unique(np.concatenate(arrays), return_inverse=True)
        coded = np.split(codes, np.cumsum([len(array) for array in arrays])[:-1])
    found = iter(torch.from_numpy(part.astype(np.int64)) for part in coded)
    return [None if column is None else next(found) for column in columns]


def read_items(path: Path) -> Items:
    """Embeddings of a file, and the labels that stand beside them."""
    suffix = path.suffix.lower()
    if suffix in table_file.SUFFIXES:
        items = _from_parquet(path) if suffix in table_file.PARQUET else _from_csv(path)
    else:
        items = _from_numpy(path)
    array = items.embeddings
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold a matrix of numbers [items, size], got {_what(array)}")
    if items.labels is not None and len(items.labels) != len(array):
        raise ValueError(f"{path} has {len(array)} vectors and {len(items.labels)} labels")
    return items


def read_labels(path: Path) -> NDArray[Any]:
    """Labels [n] of a file: the only array of .npy, else what is called `labels` or `label`."""
    if path.suffix.lower() in table_file.SUFFIXES:
        return _column_of_labels(path, table_file.read(path))
    found = _load(path)
    array = found if isinstance(found, np.ndarray) else _named(path, found, LABELS)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(f"{path} must hold integers or strings [items], got {_what(array)}")
    return array


def _by_name(columns: Sequence[GivenLabels | None]) -> list[Any]:
    maps = [column for column in columns if isinstance(column, Mapping)]
    if len(maps) < sum(column is not None for column in columns):
        raise ValueError("labels and gallery_labels must both be a mapping or both be labels")
    if any(set(one) != set(maps[0]) for one in maps):
        raise ValueError(f"gallery_labels must have the columns of labels: {', '.join(maps[0])}")
    made = {name: iter(as_labels(*(one[name] for one in maps))) for name in maps[0]}
    return [
        None if column is None else {name: next(made[name]) for name in maps[0]}
        for column in columns
    ]


def _from_numpy(path: Path) -> Items:
    found = _load(path)
    if isinstance(found, np.ndarray):
        return Items(found, None)
    known = [name for name in LABELS if name in found]
    labels = found[known[0]] if known else None
    has_labels = labels is not None and (labels != "").any()  # `unseen embed` of loose pictures
    return Items(_named(path, found, VECTORS), labels if has_labels else None)


def _from_csv(path: Path) -> Items:
    held = table_file.read(path)
    dimensions = [name for name in held if name not in {*LABELS, *_PASSED_OVER}]
    try:
        columns = [np.asarray(held[name]).astype(np.float64) for name in dimensions]
    except ValueError as error:
        raise ValueError(
            f"{path}: every column but label, path and id must hold numbers ({error})"
        ) from error
    if not columns:
        raise ValueError(f"{path} has no columns of numbers, it has {', '.join(held)}")
    has_labels = any(name in held for name in LABELS)
    return Items(np.stack(columns, axis=1), _column_of_labels(path, held) if has_labels else None)


def _from_parquet(path: Path) -> Items:
    table = table_file.read_arrow(path)
    known = [name for name in LABELS if name in table.column_names]
    labels = np.asarray(table[known[0]].to_pylist()) if known else None
    names = [name for name in table.column_names if name not in {*LABELS, *_PASSED_OVER}]
    lists = [name for name in names if name in VECTORS or f"{name}s" in VECTORS]
    for name in [*lists, *(names if len(names) == 1 else [])]:
        values = table[name].to_pylist()
        if values and isinstance(values[0], list):
            return Items(np.asarray(values), labels)
    columns = [np.asarray(table[name].to_pylist()) for name in names]
    if not columns or any(column.dtype.kind not in "fiu" for column in columns):
        raise ValueError(
            f"{path} must have a column of vectors ({', '.join(VECTORS)}) or columns of numbers, "
            f"it has {', '.join(table.column_names)}"
        )
    return Items(np.stack(columns, axis=1), labels)


def _column_of_labels(path: Path, held: table_file.Columns) -> NDArray[Any]:
    for name in LABELS:
        if name in held:
            return np.asarray(held[name])
    raise ValueError(f"{path} has no column label, it has {', '.join(held)}")


def _named(path: Path, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> NDArray[Any]:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise ValueError(f"{path} has no {' or '.join(names)}, it has {', '.join(arrays)}")


def _load(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """One array, or several by name; what a pickle could do is refused."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no NumPy file of numbers or strings (.npy, .npz)") from error


def _what(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"

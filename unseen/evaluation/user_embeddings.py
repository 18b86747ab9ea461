"""Embeddings and labels of any model, as people have them.

values    tensors, arrays, lists; labels are integers or words, the same in queries and gallery
files     .npy    a matrix [items, size], or labels [items]
          .npz    `vectors`, `embeddings` or `features`, and perhaps `labels`: what `unseen embed`
                  and `unseen data features` write
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

from unseen.core import read_limits
from unseen.core.relevance import Related
from unseen.data.base import class_labels
from unseen.data.images import table_file

VECTORS = ("vectors", "embeddings", "features")
LABELS = ("labels", "label")
_PASSED_OVER = frozenset({"path", "paths", "id"})
UserValues = Tensor | ArrayLike
UserLabels = UserValues | Related | Mapping[str, UserValues | Related]


@dataclass(frozen=True)
class Items:
    """What a file holds."""

    embeddings: NDArray[Any]  # [n, D]
    labels: NDArray[Any] | None  # [n], integers or words


def as_matrix(values: UserValues, name: str = "embeddings") -> Tensor:  # [n, D]
    """Tensors stay what they are; anything else becomes float32, or float64 where it was."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a matrix of numbers [items, size], got {_what(array)}")
    return torch.from_numpy(array.astype(np.float64 if array.itemsize > 4 else np.float32))


def as_labels(*columns: UserLabels | None) -> list[Any]:
    """Each as int64; words, and integers that are no tensors, are numbered in all of them alike.
    A mapping of columns stays one."""
    if any(isinstance(column, Mapping) for column in columns):
        return _by_name(columns)
    columns = tuple(c if c is None and place else _plain(c) for place, c in enumerate(columns))
    present = [column for column in columns if column is not None]
    if all(isinstance(column, Tensor | Related) for column in present):
        return list(columns)
    arrays = [np.asarray(column) for column in present]
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
    result = iter(torch.from_numpy(codes.astype(np.int64)) for codes in coded)
    return [None if column is None else next(result) for column in columns]


def _plain(column: Any) -> Any:
    """Integers stay the tensor they are."""
    if isinstance(column, Related) or (isinstance(column, Tensor) and _is_plain(column)):
        return column
    made = class_labels(column)
    return torch.from_numpy(made).to(column.device) if isinstance(column, Tensor) else made


def _is_plain(column: Tensor) -> bool:
    return column.ndim == 1 and not column.is_floating_point()


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
    result = _load(path)
    array = result if isinstance(result, np.ndarray) else _named(path, result, LABELS)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(f"{path} must hold integers or strings [items], got {_what(array)}")
    return array


def _by_name(columns: Sequence[UserLabels | None]) -> list[Any]:
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
    result = _load(path)
    if isinstance(result, np.ndarray):
        return Items(result, None)
    known = [name for name in LABELS if name in result]
    labels = result[known[0]] if known else None
    has_labels = labels is not None and (labels != "").any()  # `unseen embed` of loose images
    return Items(_named(path, result, VECTORS), labels if has_labels else None)


def _from_csv(path: Path) -> Items:
    table = table_file.read(path)
    dimensions = [name for name in table if name not in {*LABELS, *_PASSED_OVER}]
    try:
        columns = [np.asarray(table[name]).astype(np.float64) for name in dimensions]
    except ValueError as error:
        raise ValueError(
            f"{path}: every column but label, path and id must hold numbers ({error})"
        ) from error
    if not columns:
        raise ValueError(f"{path} has no columns of numbers, it has {', '.join(table)}")
    has_labels = any(name in table for name in LABELS)
    return Items(np.stack(columns, axis=1), _column_of_labels(path, table) if has_labels else None)


def _from_parquet(path: Path) -> Items:
    table = table_file.read_arrow(path)
    known = [name for name in LABELS if name in table.column_names]
    labels = np.asarray(table_file.values_of(table[known[0]])) if known else None
    names = [name for name in table.column_names if name not in {*LABELS, *_PASSED_OVER}]
    lists = [name for name in names if name in VECTORS or f"{name}s" in VECTORS]
    for name in [*lists, *(names if len(names) == 1 else [])]:
        values = table_file.values_of(table[name])
        if values and isinstance(values[0], list):
            return Items(np.asarray(values), labels)
    columns = [np.asarray(table_file.values_of(table[name])) for name in names]
    if not columns or any(column.dtype.kind not in "fiu" for column in columns):
        raise ValueError(
            f"{path} must have a column of vectors ({', '.join(VECTORS)}) or columns of numbers, "
            f"it has {', '.join(table.column_names)}"
        )
    return Items(np.stack(columns, axis=1), labels)


def _column_of_labels(path: Path, table: table_file.Columns) -> NDArray[Any]:
    for name in LABELS:
        if name in table:
            return np.asarray(table[name])
    raise ValueError(f"{path} has no column label, it has {', '.join(table)}")


def _named(path: Path, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> NDArray[Any]:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise ValueError(f"{path} has no {' or '.join(names)}, it has {', '.join(arrays)}")


def _load(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """One array, or several by name; what a pickle could do is refused."""
    try:
        result = read_limits.load(path)
        if isinstance(result, np.ndarray):
            return result
        with result:
            return {name: result[name] for name in result.files}
    except read_limits.TooLargeError:
        raise
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no NumPy file of numbers or strings (.npy, .npz)") from error


def _what(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"

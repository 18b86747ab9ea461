"""What differs between two recordings of `same_runs.py`, bit for bit."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FIGURE = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")  # numbers as they are written


def differences(one: Path, other: Path) -> Iterator[str]:
    """What is not the same in two recordings of a run."""
    with np.load(f"{one}.npz") as a, np.load(f"{other}.npz") as b:
        for name in sorted({*a.files, *b.files}, key=lambda n: (not n.startswith("los"), n)):
            if name not in a.files or name not in b.files:
                yield f"{name}: only in {one.parent if name in a.files else other.parent}"
            elif (x := a[name]).shape != (y := b[name]).shape or x.dtype != y.dtype:
                yield f"{name}: {x.dtype} {list(x.shape)}, {y.dtype} {list(y.shape)}"
            elif x.tobytes() != y.tobytes():
                others = np.argwhere(~((x == y) | (np.isnan(x) & np.isnan(y))))
                at = tuple(others[0].tolist()) if len(others) else (0,) * x.ndim
                yield f"{name}: {len(others)} of {x.size}, at {at}: {x[at]!r}, {y[at]!r}"
    weights = [json.loads(Path(f"{each}.json").read_text()) for each in (one, other)]
    for kind in sorted({*weights[0], *weights[1]}):
        before, after = (each.get(kind, []) for each in weights)
        if before != after:
            others = len({*before} ^ {*after})
            yield f"{kind}: {others} digests, {len(before)} and {len(after)} tensors"


def table_differences(one: Path, other: Path, became: dict[str, str]) -> Iterator[str]:
    """Of two CSV files: other numbers, as they are written. A text may become another one, if it
    does so in all tables (`became`) and no second text of this table becomes the same."""
    tables = [list(csv.reader(each.read_text().splitlines())) for each in (one, other)]
    if list(map(len, tables[0])) != list(map(len, tables[1])):
        yield f"{len(tables[0])} rows, {len(tables[1])} rows, or other columns"
        return
    came_from: dict[str, str] = {}
    for number, rows in enumerate(zip(*tables, strict=True)):
        for cells in zip(*rows, strict=True):
            numbers = [FIGURE.findall(cell) for cell in cells]
            before, after = (FIGURE.sub("#", cell) for cell in cells)
            known = became.setdefault(before, after) == after
            known &= came_from.setdefault(after, before) == before
            if numbers[0] != numbers[1] or not known:
                yield f"row {number}: {cells[0]!r}, {cells[1]!r}"


def compare(one: Path, other: Path) -> bool:
    """One line for every run or table; whether all are equal."""
    names = sorted({each.stem for place in (one, other) for each in place.iterdir()})
    assert names, f"nothing is recorded in {one} and {other}"
    same, became = True, dict[str, str]()
    for name in names:
        kind = "csv" if any((place / f"{name}.csv").exists() for place in (one, other)) else "npz"
        lacking = [place for place in (one, other) if not (place / f"{name}.{kind}").exists()]
        if lacking:
            result = [f"not in {lacking[0]}"]
        elif kind == "npz":
            result = list(differences(one / name, other / name))
        else:
            result = list(table_differences(one / f"{name}.csv", other / f"{name}.csv", became))
        more = f" (and {len(result) - 1} more)" if len(result) > 1 else ""
        print(f"{name:24} " + (f"DIFFERENT  {result[0]}{more}" if result else "equal"))
        same &= not result
    return same

"""One way to time for all benchmarks: the sides in turn, in one process; ratios, not seconds.

Machines are noisy, and the noise of a moment meets both sides. A row of the table holds the median
of the runs' ratios and the middle half of them.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One figure, the middle half of what was seen, what was wanted, and what could be had."""

    work: str
    peer: str
    value: float
    low: float
    high: float
    goal: float
    unit: str = "times"
    higher_is_better: bool = True
    limit: str = ""  # what bytes or operations would allow, measured beside it

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.higher_is_better else self.value <= self.goal


def in_turn(
    sides: dict[str, Callable[[], object]],
    repeats: int,
    time_budget: Callable[[], float] = time.process_time,
    warm: bool = True,
) -> dict[str, list[float]]:
    """Seconds of each call, one side after the other; where `warm`, a first call of each is
    not counted. The processor's time unless another clock is given: other work is not in it."""
    for run in sides.values() if warm else ():
        run()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            began = time_budget()
            run()
            times[name].append(time_budget() - began)
    return times


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), low, high


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """How many times as long the peer took, run by run."""
    return [their / our for their, our in zip(theirs, ours, strict=True)]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def add_rows(path: Path | None, *rows: Row) -> None:
    """Puts rows into a file of rows, in place of those of the same work."""
    if path is None:
        return
    kept = {row.work: row for row in (*read_rows(path), *rows)}
    path.write_text(json.dumps([asdict(row) for row in kept.values()], indent=1) + "\n")


def read_rows(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []

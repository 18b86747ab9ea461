"""What the service counts, in Prometheus's text format: requests and seconds by route, the index.

    unseen_requests_total{route="/api/search",status="2xx"} 12
    unseen_request_seconds_bucket{route="/api/search",le="0.1"} 11

Processes of one service count together, in a file of numbers that all of them map into memory:
whichever is asked tells of all. No address, image or query is counted.
"""

import bisect
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from unseen.core.files import locked

STATUSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds; above is the last bucket
OTHER = "-"  # refused before it had a route


class Metrics:
    """routes: all that there are. path: a file that processes share; without, this one alone."""

    def __init__(self, routes: Sequence[str], path: Path | None = None) -> None:
        self.routes = [*sorted(set(routes)), OTHER]
        width = len(STATUSES) + len(EDGES) + 2  # and the bucket above, and the sum
        size = 8 * width * len(self.routes)
        self._file = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if self._file is not None:
            os.ftruncate(self._file, size)  # zeros, once
        self._memory = mmap.mmap(-1 if self._file is None else self._file, size)
        self._numbers = np.frombuffer(self._memory, dtype=np.float64).reshape(-1, width)

    def count(self, route: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        row = self._numbers[self.routes.index(route if route in self.routes else OTHER)]
        with locked(self._file):
            row[min(max(status // 100, 1), 5) - 1] += 1
            row[len(STATUSES) + bisect.bisect_left(EDGES, seconds)] += 1
            row[-1] += seconds

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything, and what holds at this moment."""
        with locked(self._file):
            numbers = self._numbers.copy()
        lines = ["# TYPE unseen_requests_total counter"]
        for route, row in zip(self.routes, numbers, strict=True):
            lines += [
                f'unseen_requests_total{{route="{route}",status="{status}"}} {count:g}'
                for status, count in zip(STATUSES, row, strict=False)
                if count
            ]
        lines.append("# TYPE unseen_request_seconds histogram")
        for route, row in zip(self.routes, numbers, strict=True):
            lines += _histogram(route, row[len(STATUSES) : -1], float(row[-1]))
        for name, value in gauges.items():
            lines += [f"# TYPE unseen_{name} gauge", f"unseen_{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _histogram(route: str, buckets: np.ndarray, seconds: float) -> Iterator[str]:
    total = 0.0
    if not buckets.any():
        return
    for edge, count in zip([*map(str, EDGES), "+Inf"], buckets.tolist(), strict=True):
        total += count
        yield f'unseen_request_seconds_bucket{{route="{route}",le="{edge}"}} {total:g}'
    yield f'unseen_request_seconds_sum{{route="{route}"}} {seconds:g}'
    yield f'unseen_request_seconds_count{{route="{route}"}} {total:g}'

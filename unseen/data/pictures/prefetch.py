"""Results of slow work in their order, a bounded number prepared ahead in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, most: int = 128
) -> Iterator[Result]:
    """`work` of each item, in order; at most `most` results wait, however slow the consumer is."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also when the caller stops early, or an item breaks
        pool.shutdown(cancel_futures=True)

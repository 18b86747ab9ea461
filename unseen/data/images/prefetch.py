"""Results of slow work in their order, a bounded number prepared ahead in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from unseen.core.contracts import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")


class Start(Protocol):
    """Sets a call to work and says how to get its result."""

    def __call__(self, call: Callable[[], Result], /) -> Callable[[], Result]: ...


def prefetch(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, most: int = 128
) -> Iterator[Result]:
    """`work` of each item, in order; at most `most` results wait, however slow the consumer is."""
    with workers(threads) as start:
        yield from in_order(lambda item: start(partial(work, item)), items, most - 1)


def results_of(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int, progress: Progress | None
) -> list[Result]:
    """All results of `prefetch`; `progress` hears how many of them there are."""
    results = []
    for result in prefetch(work, items, threads):
        results.append(result)
        if progress is not None:
            progress(len(results), len(items))
    return results


def in_order(
    begin: Callable[[Item], Callable[[], Result]], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """The results of items; `begin` sets to work what an item needs and says how to get its
    result. So many more items have been begun when a result is given."""
    waiting: deque[Callable[[], Result]] = deque()
    for item in items:
        waiting.append(begin(item))
        if len(waiting) > ahead:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


@contextmanager
def workers(threads: int) -> Iterator[Start]:
    """What sets a call to work: in so many threads; with none it runs when its result is asked
    for."""
    if not threads:
        yield lambda call: call
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="images")
    try:
        yield lambda call: pool.submit(call).result
    finally:  # also when the caller stops early, or an item breaks
        pool.shutdown(cancel_futures=True)

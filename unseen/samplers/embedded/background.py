"""Batches of an epoch that are drawn while it goes on, in a thread beside the training."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from unseen.core.contracts import IntArray

Draw = Callable[[], list[IntArray]]


class Background:
    """Draws later batches beside the training.

    When they are drawn, and when they count, depends on the step alone, never on time: after every
    `every` steps one draw begins, from the embeddings of that moment, and its batches count from
    `every` steps later on. Training waits for a draw that is not ready. So a run repeats, a resumed
    run goes on and several processes agree bit for bit, however long a draw takes.

    Args:
        every: steps between draws.
        begin: takes the number of the first batch to draw, copies what the draw needs and returns
            the draw, which runs beside the training; None where the epoch ends before that batch.
    """

    def __init__(self, every: int, begin: Callable[[int], Draw | None]) -> None:
        self.every, self.begin = every, begin
        self.done = 0  # steps of this epoch
        self.waiting: deque[Future[list[IntArray]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def restart(self, done: int = 0) -> None:
        """Another epoch, or the same one after so many steps: what was begun is forgotten."""
        self.done = done
        for draw in self.waiting:
            draw.cancel()
        self.waiting.clear()

    def after_step(self) -> None:
        self.done += 1
        draw = self.begin(self.done + self.every) if self.done % self.every == 0 else None
        if draw is not None:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="sampler")
            self.waiting.append(self._pool.submit(draw))

    def next(self) -> list[IntArray]:
        """The batches that follow those known."""
        if not self.waiting:
            raise ValueError(
                f"batches are asked for more than {self.every} steps ahead of training, before the "
                "embeddings they are chosen by are there: raise sampler.search_every, or leave it "
                "out to search once an epoch"
            )
        return self.waiting.popleft().result()

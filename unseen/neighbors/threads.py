"""Blocks of work on several threads, each thread working alone.

A product and the dozen small operations after it run faster side by side, one block per thread,
than one after the other with all threads in each: nobody waits for anybody. On a busy machine,
where a team waits for whichever of its threads is held up, the difference is several times.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

Task = TypeVar("Task")


def in_parallel(tasks: Sequence[Task], work: Callable[[Task], None], device: torch.device) -> None:
    """Does every task once, side by side, on as many threads as torch may use.

    No task may need the result of another. An error, or Ctrl-C, stops the rest and is raised.
    """
    num_threads = min(torch.get_num_threads(), len(tasks))
    if num_threads <= 1 or device.type != "cpu":
        for task in tasks:
            work(task)
        return
    crew = _Crew(tasks, work)
    before = torch.get_num_threads()
    threads = [threading.Thread(target=crew.run, daemon=True) for _ in range(num_threads)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        crew.stop()
        for thread in threads:
            thread.join()
        torch.set_num_threads(before)  # a part of the setting is common to all threads
    if crew.error is not None:
        raise crew.error


class _Crew(Generic[Task]):
    """What the threads share: who takes which task, and whether to go on."""

    def __init__(self, tasks: Sequence[Task], work: Callable[[Task], None]) -> None:
        self.tasks, self.work = iter(tasks), work
        self.lock = threading.Lock()
        self.stopped = False
        self.error: BaseException | None = None
        self.inference = torch.is_inference_mode_enabled()

    def run(self) -> None:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode(self.inference), torch.no_grad():
                while (task := self._next()) is not None:
                    self.work(task)
        except BaseException as error:  # handed to the caller's thread
            self.error = error
            self.stop()

    def stop(self) -> None:
        self.stopped = True

    def _next(self) -> Task | None:
        with self.lock:
            return None if self.stopped else next(self.tasks, None)

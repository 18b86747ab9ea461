"""Notices when another process of a run falls silent."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

SECONDS = 4.0  # between two checks
CHECKS = 10
LOST = "another process of this run has ended; the same command goes on from the last checkpoint"


def end(message: str) -> None:
    """The main thread may hang in a message to the lost process: only this ends it."""
    print(f"unseen: {message}", file=sys.stderr, flush=True)
    os._exit(2)


class Heartbeat:
    """Notices when another process of a run falls silent.

    store: `set(key, text)` and `get(key)`, seen by all processes (torch's TCPStore).

    Every process counts upwards in a store they share and reads the others' counts. A process whose
    count stands still for `CHECKS` checks is lost, and this one ends: what it waits for will never
    come. Checks are counted, not seconds, so that a suspended run is not mistaken.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        count: int,
        seconds: float = SECONDS,
        on_loss: Callable[[str], None] = end,
    ) -> None:
        self.store, self.rank, self.seconds, self.on_loss = store, rank, seconds, on_loss
        self.others = [other for other in range(count) if other != rank]
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._show(0)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leaving.set()
        self.thread.join()

    def _beat(self) -> None:
        seen = dict.fromkeys(self.others, b"")
        still = dict.fromkeys(self.others, 0)
        beat = 0
        while not self.leaving.wait(self.seconds):
            beat += 1
            try:
                self._show(beat)
                now = {other: self.store.get(_key(other)) for other in self.others}
            except RuntimeError:  # the store itself is gone, and with it the process that held it
                return self.on_loss(LOST)
            for other in self.others:
                still[other] = still[other] + 1 if now[other] == seen[other] else 0
            seen = now
            if max(still.values()) >= CHECKS:
                return self.on_loss(LOST)
        return None

    def _show(self, beat: int) -> None:
        self.store.set(_key(self.rank), str(beat))


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"

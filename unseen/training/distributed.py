"""Several processes that together compute what one would. No other file says torch.distributed."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

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


# Long, because one process may wait for another's lone work; the heartbeat notices the dead ones.
PATIENCE = timedelta(hours=24)

LOOPBACK = "GLOO_SOCKET_IFNAME"  # processes of one machine need not be reached from others

REQUEST = (
    "asked to end, like all processes of this run; the same command goes on from the checkpoint"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all of them; alone unless `joined` says otherwise.

        unseen train photos cpu_processes=2                          two of this machine
                                                              (runs/cpu_processes.py)
        torchrun --nproc-per-node 2 -m unseen train glyphs    on any number of machines

    Every process embeds its share of the batch; the rows are gathered, and each process evaluates
    the same objective on the whole batch. Of the objective's gradient a process keeps its own rows
    and takes them back through its network; the network's gradients are then summed (gradients.py).
    The objective's own parameters see the whole batch everywhere, so theirs are not summed: those
    of the first process count everywhere, and rounding cannot let the processes drift apart. The
    exception are class centres that are divided among the processes (losses/class_centers): each
    has some rows and their gradient, and the sums of the loss over all rows are put together inside
    it.

    gloo carries tensors on the CPU, nccl those on GPUs. Only the first process writes and prints. A
    process that ends takes the others with it: a broken connection is a `ConnectionError`, and one
    that falls silent without breaking it is missed by the others' heartbeat.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """The one that writes and prints."""
        return self.rank == 0

    @property
    def are_several(self) -> bool:
        return self.count > 1

    def fraction(self, total: int) -> slice:
        """This process's part of `total` items; the parts differ in length by one at most."""
        each, more = divmod(total, self.count)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    def lengths(self, rows: int, device: torch.device) -> list[int]:
        """How many rows each process has."""
        if not self.are_several:
            return [rows]
        own = torch.tensor([rows], device=device)
        every = [torch.empty_like(own) for _ in range(self.count)]
        with _connected():
            dist.all_gather(every, own)
        return [int(length) for length in every]

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> Tensor:
        """All processes' rows in their order, without gradient."""
        if not self.are_several:
            return rows
        padded = rows.new_zeros((max(lengths), *rows.shape[1:]))  # shapes must be alike
        padded[: len(rows)] = rows.detach()
        every = [torch.empty_like(padded) for _ in range(self.count)]
        with _connected():
            dist.all_gather(every, padded)
        return torch.cat([some[:length] for some, length in zip(every, lengths, strict=True)])

    def sum_gradients(
        self, of_processes: Iterable[nn.Parameter], of_whole: Iterable[nn.Parameter]
    ) -> None:
        """Adds up gradients that each process has of its share; those every process has of the
        whole batch become the first one's. One message."""
        if not self.are_several:
            return
        parts = [p.grad for p in of_processes if p.grad is not None]
        wholes = [p.grad for p in of_whole if p.grad is not None]
        for gradient in wholes if not self.is_first else []:
            gradient.zero_()
        gradients = [*parts, *wholes]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with _connected():
            dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def largest(self, values: Tensor) -> Tensor:
        """The largest of all processes' values, entry by entry, without gradient."""
        values = values.detach()
        if self.are_several:
            values = values.clone()
            with _connected():
                dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def added(self, values: Tensor) -> Tensor:
        """The sum of all processes' values; each process has the gradient of its own."""
        return _Added.apply(values) if self.are_several else values

    def shared(self, values: Tensor) -> Tensor:
        """Values that every process has; their gradient is the sum of all processes'."""
        return _Shared.apply(values) if self.are_several else values

    def collected(self, rows: Tensor) -> Tensor:
        """All processes' rows in their order, at the first one; elsewhere the own."""
        lengths = self.lengths(len(rows), rows.device)
        for rank, length in enumerate(lengths[1:], start=1):
            with _connected():
                if self.rank == rank:
                    dist.send(rows.detach().contiguous(), 0)
                elif self.is_first:
                    received = rows.new_empty((length, *rows.shape[1:]))
                    dist.recv(received, rank)
                    rows = torch.cat([rows.detach(), received])
        return rows

    def agreed(self, compute: Callable[[], T]) -> T:
        """What the first process computes, in every process."""
        if not self.are_several:
            return compute()
        box = [compute() if self.is_first else None]
        with _connected():
            dist.broadcast_object_list(box, src=0)
        value: T = box[0]  # type: ignore[assignment]
        return value

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """The first process goes through the block before the others: it fills caches for them."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.are_several:
            with _connected():
                dist.barrier()


class _Added(torch.autograd.Function):
    """Sum going forwards, copy going back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        with _connected():
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Shared(torch.autograd.Function):
    """Copy going forwards, sum going back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.contiguous().clone()
        with _connected():
            dist.all_reduce(total)
        return total


def are_started() -> bool:
    """Whether torchrun started several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """The processes that torchrun started, while the block runs; without it this one alone.
    device: that of the run, or "auto"."""
    if not are_started():
        yield Processes()
        return
    has_gpu = device != "cpu" and torch.cuda.is_available()
    if has_gpu:
        if ":" in device:
            raise ValueError(
                f"device={device} is one GPU, and torchrun gives each process one: device=cuda"
            )
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with _connected():
        store, rank, count = next(rendezvous("env://", timeout=timedelta(minutes=5)))
        backend = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"
    heartbeat = Heartbeat(store.clone(), rank, count)
    with _group(store, rank, count, backend, heartbeat) as processes:
        yield processes


@contextmanager
def joined_here(meeting: Path, rank: int, count: int) -> Iterator[Processes]:
    """Processes of one machine that find each other by a file, while the block runs. They need no
    heartbeat: the end of one breaks the connection at once."""
    before = {LOOPBACK: os.environ.get(LOOPBACK)}
    os.environ.setdefault(LOOPBACK, "lo0" if sys.platform == "darwin" else "lo")
    try:
        store = dist.FileStore(os.fspath(meeting), count)
        with _group(store, rank, count, "gloo", nullcontext()) as processes:
            yield processes
    finally:
        if before[LOOPBACK] is None:
            del os.environ[LOOPBACK]


@contextmanager
def _group(
    store: dist.Store,
    rank: int,
    count: int,
    backend: str,
    heartbeat: AbstractContextManager[object],
) -> Iterator[Processes]:
    with _connected():
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    processes = Processes(rank, count)
    try:
        with heartbeat, _message_when_ended():
            yield processes
            processes.wait()  # nobody leaves, and falls silent, while others still work
    finally:
        dist.destroy_process_group()


@contextmanager
def _connected() -> Iterator[None]:
    """A connection that breaks is told as what it means."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(LOST) from error


@contextmanager
def _message_when_ended() -> Iterator[None]:
    """torchrun asks all processes to end when one has ended, or when it is asked to end itself:
    whoever computes just then says so too."""

    def stop(*_: object) -> None:
        raise ConnectionError(REQUEST)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may ask to be told
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

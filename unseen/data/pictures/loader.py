"""Batches of pictures, prepared in threads while the network computes.

Decoding, resizing and augmenting release Python's lock, so threads do: nothing is copied between
processes and nothing has to be picklable. A few batches are prepared ahead, never more, whatever
the number of workers, and come in the order the sampler gave them. An augmentation is drawn from
(seed, epoch, place in the epoch, index), so any number of workers, and a run that was resumed,
see the same pictures.

Data sets that hold all their pixels (`arrays()`) meet transforms that work on whole batches
(`on_pixels`) without the detour over single pictures. Data sets of features have no pictures: their
rows are the batch, and there is no transform.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.contracts import Batch, Dataset, FeatureDataset, IntArray, Sampler
from unseen.data.pictures.transforms import Transform

_AHEAD = 2  # batches prepared while one is computed on

Part = Callable[[], Tensor]  # makes [n, channels, height, width], or [n, features]


@runtime_checkable
class BatchTransform(Protocol):
    """A transform of many grey or RGB pictures of one size at once."""

    def on_pixels(self, pixels: Tensor, rngs: Sequence[np.random.Generator]) -> Tensor: ...


@runtime_checkable
class InMemory(Protocol):
    """A data set that has all its pictures at hand, grey and of one size."""

    def arrays(self) -> NDArray[np.uint8]: ...


@runtime_checkable
class Reducing(Protocol):
    """A data set that reads a picture faster when it may come smaller."""

    def reduced(self, index: int, short_side: int) -> Image.Image: ...


class _Order(NamedTuple):
    """Which pictures, and where their random choices come from."""

    indices: list[int]
    seeds: Sequence[tuple[int, ...]]


def training_batches(
    dataset: Dataset,
    transform: Transform | None,
    sampler: Sampler,
    epoch: int,
    seed: int,
    *,
    workers: int,
    skip: int = 0,
) -> Iterator[Batch]:
    """One epoch of the sampler's batches, less the first `skip`: a resumed run has seen those."""
    sampler.set_epoch(epoch)

    def orders() -> Iterator[_Order]:
        place = 0
        for number, indices in enumerate(sampler):
            if number >= skip:
                seeds = [(seed, epoch, place + k, index) for k, index in enumerate(indices)]
                yield _Order(list(indices), seeds)
            place += len(indices)

    return _batches(dataset, transform, orders(), workers)


def evaluation_batches(
    dataset: Dataset,
    indices: IntArray,
    transform: Transform | None,
    batch_size: int,
    *,
    workers: int,
) -> Iterator[Batch]:
    """The pictures at `indices`, in that order; the last batch may be smaller."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    starts = range(0, len(indices), batch_size)
    chunks = (np.asarray(indices[start : start + batch_size]).tolist() for start in starts)
    orders = (_Order(chunk, [(index,) for index in chunk]) for chunk in chunks)
    return _batches(dataset, transform, orders, workers)


def _batches(
    dataset: Dataset, transform: Transform | None, orders: Iterable[_Order], workers: int
) -> Iterator[Batch]:
    if workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")
    if workers == 0:
        return _in_turn(dataset, transform, orders, start=lambda part: part)
    return _in_threads(dataset, transform, orders, workers)


def _in_threads(
    dataset: Dataset, transform: Transform | None, orders: Iterable[_Order], workers: int
) -> Iterator[Batch]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pictures")
    try:
        yield from _in_turn(dataset, transform, orders, start=lambda part: pool.submit(part).result)
    finally:  # also when the caller stops early, or a file breaks
        pool.shutdown(cancel_futures=True)


def _in_turn(
    dataset: Dataset,
    transform: Transform | None,
    orders: Iterable[_Order],
    start: Callable[[Part], Part],
) -> Iterator[Batch]:
    """`start` sets a part to work and says how to get its result."""
    # The sampler is asked ahead even without workers: one that learns during the epoch must not
    # answer differently because of the number of threads.
    waiting: deque[tuple[_Order, list[Part]]] = deque()
    for order in orders:
        waiting.append((order, [start(part) for part in _parts(dataset, transform, order)]))
        if len(waiting) > _AHEAD:
            yield _collected(dataset, *waiting.popleft())
    while waiting:
        yield _collected(dataset, *waiting.popleft())


def _collected(dataset: Dataset, order: _Order, results: list[Part]) -> Batch:
    images = torch.cat([result() for result in results])
    indices = torch.tensor(order.indices, dtype=torch.int64)
    labels = torch.from_numpy(dataset.labels[order.indices])
    return Batch(images, labels, indices)


def _parts(dataset: Dataset, transform: Transform | None, order: _Order) -> list[Part]:
    if isinstance(dataset, FeatureDataset):
        features = dataset.features
        return [lambda: torch.from_numpy(features[order.indices]).float()]
    if transform is None:
        raise ValueError(f"{dataset.name} holds pictures: they need a transform")
    if isinstance(dataset, InMemory) and isinstance(transform, BatchTransform):
        pixels, on_pixels = dataset.arrays(), transform.on_pixels

        def whole() -> Tensor:
            grey = torch.from_numpy(pixels[order.indices])[:, None]
            return on_pixels(grey, [np.random.default_rng(s) for s in order.seeds])

        return [whole]

    def single(index: int, seed: tuple[int, ...]) -> Tensor:
        if isinstance(dataset, Reducing):
            picture = dataset.reduced(index, transform.short_side)
        else:
            picture = dataset.picture(index)
        return transform(picture, np.random.default_rng(seed))[None]

    return [
        partial(single, index, seed) for index, seed in zip(order.indices, order.seeds, strict=True)
    ]

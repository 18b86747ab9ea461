"""Batches of images, prepared in threads while the network computes.

Decoding, resizing and augmenting release Python's lock, so threads do: nothing is copied between
processes and nothing has to be picklable. A few batches are prepared ahead, never more, whatever
the number of workers, and come in the order the sampler gave them. An augmentation is drawn from
(seed, epoch, place in the epoch, index), so any number of workers, and a run that was resumed,
see the same images.

Data sets that hold all their pixels (`arrays()`) meet transforms that work on whole batches
(`on_pixels`) without the detour over single images. Data sets of features have no images: their
rows are the batch, and there is no transform.

An image that cannot be read ends the run, unless somebody wants to be told (`on_unreadable`): then
another of its class takes its place in training, drawn from what the image's augmentation is
drawn from, and in evaluation, where a second copy of another image would be found too easily, a
blank one does. Whoever is told is told in the order of the batches, in the caller's thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from unseen.core.contracts import (
    Batch,
    Dataset,
    FeatureDataset,
    IntArray,
    OpeningDataset,
    PixelDataset,
    Sampler,
)
from unseen.data.images.crops import Loaded, Prepared
from unseen.data.images.decode import UnreadableImageError
from unseen.data.images.prefetch import in_order, workers
from unseen.data.images.transforms import Transform

_AHEAD = 2  # batches prepared while one is computed on

OnUnreadable = Callable[[UnreadableImageError], None]


class _Done(NamedTuple):
    """A part of a batch, and what broke on the way."""

    images: Tensor  # [n, channels, height, width], or [n, features]
    errors: tuple[UnreadableImageError, ...] = ()


Task = Callable[[], _Done]


@runtime_checkable
class BatchTransform(Protocol):
    """A transform of many grey or RGB images of one size at once."""

    def on_pixels(self, pixels: Tensor, rngs: Sequence[np.random.Generator]) -> Tensor: ...


class _Order(NamedTuple):
    """Which images, and where their random choices come from."""

    indices: list[int]
    seeds: Sequence[tuple[int, ...]]


class Loader(Protocol):
    """Makes the batches of training: of images (or features), or of kept activations."""

    def training_batches(self, sampler: Sampler, epoch: int, skip: int) -> Iterator[Batch]:
        """The epoch's batches, less the first `skip`."""
        ...


@dataclass(frozen=True)
class ImageLoader:
    """The batches of a run. training: one transform, or several in turn, each for its part of the
    `epochs`. share: which part of a batch of so many images this process wants. pinned: they are
    for a GPU, which takes them from pinned memory while the processor goes on."""

    dataset: Dataset
    training: Sequence[Transform | None]
    epochs: int
    seed: int
    workers: int
    on_unreadable: OnUnreadable | None
    fraction: Callable[[int], slice]
    pinned: bool = False

    def training_batches(self, sampler: Sampler, epoch: int, skip: int) -> Iterator[Batch]:
        return training_batches(
            self.dataset,
            self.training[epoch * len(self.training) // self.epochs],
            sampler,
            epoch,
            self.seed,
            workers=self.workers,
            skip=skip,
            on_unreadable=self.on_unreadable,
            fraction=self.fraction,
            pinned=self.pinned,
        )


def training_batches(
    dataset: Dataset,
    transform: Transform | None,
    sampler: Sampler,
    epoch: int,
    seed: int,
    *,
    workers: int,
    skip: int = 0,
    on_unreadable: OnUnreadable | None = None,
    fraction: Callable[[int], slice] = slice,
    pinned: bool = False,
) -> Iterator[Batch]:
    """One epoch of the sampler's batches, less the first `skip`: a resumed run has seen those.
    `share` says which part of a batch of so many images is wanted, all of it unless told."""
    sampler.set_epoch(epoch)

    def orders() -> Iterator[_Order]:
        place = 0
        for number, indices in enumerate(sampler):
            if number >= skip:
                seeds = [(seed, epoch, place + k, index) for k, index in enumerate(indices)]
                own = fraction(len(indices))
                if not seeds[own]:
                    raise ValueError(
                        f"a batch of {len(indices)} images cannot be shared among more "
                        "processes than that: start fewer, or raise batch_size"
                    )
                yield _Order(list(indices)[own], seeds[own])
            place += len(indices)

    work = _Work(dataset, transform, of_the_same_class, on_unreadable, pinned)
    return _batches(work, orders(), workers)


def evaluation_batches(
    dataset: Dataset,
    indices: IntArray,
    transform: Transform | None,
    batch_size: int,
    *,
    workers: int,
    on_unreadable: OnUnreadable | None = None,
    stand_in: "StandIn | None" = None,
) -> Iterator[Batch]:
    """The images at `indices`, in that order; the last batch may be smaller. `stand_in` makes
    what takes the place of a broken one; None: a blank image."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    starts = range(0, len(indices), batch_size)
    chunks = (np.asarray(indices[start : start + batch_size]).tolist() for start in starts)
    orders = (_Order(result, [(index,) for index in result]) for result in chunks)
    return _batches(_Work(dataset, transform, stand_in or blank, on_unreadable), orders, workers)


Seed = tuple[int, ...]
StandIn = Callable[[Dataset, Transform, int, Seed, UnreadableImageError], _Done]


class _Work(NamedTuple):
    """What is read how, and what happens where it cannot be."""

    dataset: Dataset
    transform: Transform | None
    stand_in: StandIn
    on_unreadable: OnUnreadable | None  # who is told; None: nothing stands in, the error is raised
    pinned: bool = False


def _batches(work: _Work, orders: Iterable[_Order], num_workers: int) -> Iterator[Batch]:
    if num_workers < 0:
        raise ValueError(f"workers must be at least 0, got {num_workers}")
    return _in_turn(work, orders, num_workers)


def _in_turn(work: _Work, orders: Iterable[_Order], num_workers: int) -> Iterator[Batch]:
    # The sampler is asked ahead even without workers: one that learns during the epoch must not
    # answer differently because of the number of threads.
    with workers(num_workers) as start:

        def begin(order: _Order) -> Callable[[], Batch]:
            results = [start(task) for task in _tasks(work, order)]
            return partial(_collected, work, order, results)

        yield from in_order(begin, orders, _AHEAD)


def _collected(work: _Work, order: _Order, results: list[Task]) -> Batch:
    chunks = [result() for result in results]
    for error in (error for chunk in chunks for error in chunk.errors):
        assert work.on_unreadable is not None, "errors are only kept for somebody"
        work.on_unreadable(error)
    images = [chunk.images for chunk in chunks]
    out = None
    if work.pinned:  # joined where a GPU can fetch them: no copy more than without
        shape = (sum(map(len, images)), *images[0].shape[1:])
        out = torch.empty(shape, dtype=images[0].dtype, pin_memory=True)
    indices = torch.tensor(order.indices, dtype=torch.int64)
    labels = torch.from_numpy(work.dataset.labels[order.indices])
    return Batch(torch.cat(images, out=out), labels, indices)


def _tasks(work: _Work, order: _Order) -> list[Task]:
    dataset, transform = work.dataset, work.transform
    if isinstance(dataset, FeatureDataset):
        features = dataset.features
        return [lambda: _Done(torch.from_numpy(features[order.indices]).float())]
    if transform is None:
        raise ValueError(f"{dataset.name} holds images: they need a transform")
    if isinstance(dataset, PixelDataset) and isinstance(transform, BatchTransform):
        pixels, on_pixels = dataset.arrays(), transform.on_pixels

        def whole() -> _Done:
            grey = torch.from_numpy(pixels[order.indices])[:, None]
            return _Done(on_pixels(grey, [np.random.default_rng(s) for s in order.seeds]))

        return [whole]

    def single(index: int, seed: Seed) -> _Done:
        try:
            return _Done(prepared(dataset, transform, index, seed))
        except UnreadableImageError as error:
            if work.on_unreadable is None:
                raise
            return work.stand_in(dataset, transform, index, seed, error)

    return [
        partial(single, index, seed) for index, seed in zip(order.indices, order.seeds, strict=True)
    ]


def prepared(
    dataset: Dataset, transform: Transform, index: int, seed: Seed
) -> Tensor:  # [1, 3, height, width]
    """An item as batches hold it."""
    rng = np.random.default_rng(seed)
    if not isinstance(dataset, OpeningDataset):
        return transform(dataset.image(index), rng)[None]
    with dataset.opened(index) as image:
        return transform(image, rng)[None]


def of_the_same_class(
    dataset: Dataset,
    transform: Transform,
    index: int,
    seed: Seed,
    error: UnreadableImageError,
) -> _Done:
    """Another image of the class; which, only `seed` decides."""
    mates = np.flatnonzero(dataset.labels == dataset.labels[index])
    errors = [error]
    for mate in np.random.default_rng(seed).permutation(mates[mates != index]).tolist():
        try:
            return _Done(prepared(dataset, transform, mate, seed), tuple(errors))
        except UnreadableImageError as another:
            errors.append(another)
    name = dataset.label_names[dataset.labels[index]]
    raise ValueError(f"no image of class {name} can be read any more; {error}") from error


def blank(
    dataset: Dataset, transform: Transform, index: int, seed: Seed, error: UnreadableImageError
) -> _Done:
    """A black image."""
    black = Loaded(np.zeros((8, 8, 3), dtype=np.uint8))
    return _Done(transform(black, np.random.default_rng(seed))[None], (error,))


def typical_side(data: Dataset) -> int:
    """The median shorter side of a few images."""
    some = np.linspace(0, len(data) - 1, num=min(25, len(data)), dtype=int)
    sides = [side for side in (_short_side(data, int(i)) for i in some) if side is not None]
    if not sides:
        raise ValueError(f"none of {len(some)} images of {data.name} can be read")
    return int(np.median(sides))


def _short_side(data: Dataset, index: int) -> int | None:
    try:
        if not isinstance(data, OpeningDataset):
            return min(data.image(index).size)
        with data.opened(index) as image:
            return min(image.size)
    except UnreadableImageError:
        return None  # a run goes on without it


def tensor_side(data: Dataset) -> int | None:
    """The side of the tensors that a data set's own transform makes; None: it gives images."""
    if not isinstance(data, OpeningDataset) or not len(data):
        return None
    try:
        with data.opened(0) as image:
            return image.size[0] if isinstance(image, Prepared) else None
    except UnreadableImageError:
        return None

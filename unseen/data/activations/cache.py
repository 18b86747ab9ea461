"""Frozen layers run once: the activations at a cut, on disk, for every image and augmented view.

    cut = split_network(network, "blocks.5")
    cache = ActivationCache(folder, cut.frozen, Augmentations(dataset, training_transform, count=4))
    print(cache.plan(items))                  # size and time before anything starts
    cache.build(items, workers=2)             # goes on where it was stopped
    for batch in cache.training_batches(sampler, epoch, seed):
        output = cut.rest(batch.images)

Each view is a file in a folder named after a hash of everything it depends on: weights before the
cut, data, transform and view. Other weights or images have another name, so a stale
file is never found; what lies under the right name but does not fit is made again, and so is what
is found damaged or deleted while it is read. Runs that differ after the cut only (loss, head,
split, seed) share their files, and so do processes that fill them at the same time. Images are
computed in fixed blocks of the data set, so what is kept does not depend on who asked first.

An image that cannot be read is reported (`on_unreadable`) and another one is kept in its place, as
the loader does; its block is tried again by every build, so that each run hears of it and an image
that comes back is taken. Without `on_unreadable` it ends the build.

Values are kept as 16-bit whole numbers with one scale per image and channel: half the size of
float32, with errors several times below float16's. Change of the whole gradient,
EfficientNet-Lite0 on CUB images, the largest of 4 batches of 16, cut at blocks.3, blocks.4,
blocks.5: 0.5, 0.3, 0.6 %; float16 1.7, 1.8, 1.1 %; at pooled 0.003 and 0.04 %
(benchmarks/activation_cache.py --gradients).

Maps are kept with their channels last, as the convolutions after the cut want them.
"""

import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.core.contracts import Batch, Dataset, FrozenLayers, IntArray, Progress, Sampler
from unseen.data.activations.file import (
    ATTEMPTS,
    BLOCK,
    WHOLE,
    WITH_STAND_INS,
    ActivationFile,
    blocks_of,
)
from unseen.data.images import prefetch
from unseen.data.images.crops import LazyImage
from unseen.data.images.decode import UnreadableImageError
from unseen.data.images.loader import OnUnreadable, StandIn, evaluation_batches
from unseen.data.images.transforms import Transform

AHEAD = 2  # batches read while one is computed on
GROUP = 16  # blocks handed to the loader at once
TRIED, TRIALS = 8, 3  # images of a batch and batches that a time is estimated from
LAYOUT = 4  # raise when the files change their meaning
Order = tuple[IntArray, IntArray]  # items, and the view of each
_LARGEST = np.iinfo(np.int16).max


@dataclass(frozen=True)
class Augmentations:
    """What is kept: the images of a data set under a transform, `count` times drawn anew.
    stand_in: what is kept for a broken image; None: a blank one."""

    dataset: Dataset
    transform: Transform
    count: int = 1
    stand_in: StandIn | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"cached_augmentations must be at least 1, got {self.count}")

    def key(self) -> dict[str, Any]:
        transform = f"{type(self.transform).__module__}.{self.transform!r}"
        return {"data": self.dataset.fingerprint(), "transform": transform}


@dataclass(frozen=True)
class Plan:
    """What building a cache costs. num_images: that are asked for; num_missing: those of them
    that lack some view; the rest counts what is computed and kept with them, block by block."""

    folder: Path
    num_bytes: int
    num_images: int
    num_missing: int
    seconds: float

    def __str__(self) -> str:
        digits = 0 if self.num_bytes > 1e7 else 1
        size = f"{self.num_bytes / 1e6:,.{digits}f} MB in {self.folder} (safe to delete)"
        if not self.num_missing:
            return f"all {self.num_images:,} images have been through the frozen layers; {size}"
        done = self.num_images - self.num_missing
        time_left = f"{self.seconds / 60:.0f} min" if self.seconds > 90 else f"{self.seconds:.0f} s"
        return (
            f"{done:,} of {self.num_images:,} images have been through the frozen layers, "
            f"about {time_left} for the others; {size}"
        )


class ActivationCache:
    """Activations of a frozen prefix in memory-mapped files, one per view."""

    def __init__(
        self,
        root: Path,
        prefix: FrozenLayers,
        augmentations: Augmentations,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.root, self.prefix, self.augmentations = root, prefix, augmentations
        self.warn = warn
        self.on_unreadable: OnUnreadable | None = None  # given to the last build
        record = _record(tuple(_to_file(prefix.run(self._few(1))).shape[1:]))
        key = {"weights": prefix.fingerprint(), "layout": LAYOUT} | augmentations.key()
        self.files: list[ActivationFile] = []
        for view in range(augmentations.count):
            own_key = key | {"view": view}
            digest = hashlib.sha256(json.dumps(own_key, sort_keys=True).encode()).hexdigest()
            file = ActivationFile(root / digest[:24], own_key, len(augmentations.dataset), record)
            self.files.append(file)
        self.built = np.zeros((augmentations.count, self.files[0].num_blocks), dtype=bool)

    def missing(self, items: IntArray) -> list[tuple[int, int]]:
        """(view, block) of what some items need and is not there yet, or not whole."""
        wanted = blocks_of(items)
        return [
            (view, int(block))
            for view, file in enumerate(self.files)
            for block in wanted[~file.whole()[wanted]]
        ]

    def is_ready(self, items: IntArray) -> bool:
        """Whether all of some items can be read, be it a stand-in."""
        wanted = blocks_of(items)
        return all(bool(file.done()[wanted].all()) for file in self.files)

    def plan(self, items: IntArray, processes: int = 1) -> Plan:
        """Size, and time for what is missing, from a trial with a few images; processes: that
        share the work."""
        missing, wanted = self.missing(items), np.unique(items)
        lacking = np.isin(wanted // BLOCK, [block for _, block in missing])
        to_run = sum(len(self._items_of(block)) for _, block in missing)
        seconds = to_run * self._seconds_per_image() / processes if to_run else 0.0
        num_records = len(self.files) * self._num_images(items)
        num_bytes = num_records * self.files[0].record.itemsize
        return Plan(self.root, num_bytes, len(wanted), int(lacking.sum()), seconds)

    def build(
        self,
        items: IntArray,
        workers: int = 0,
        progress: Progress | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        """Computes what is missing, block by block, and tells (done, all), in images of those
        blocks, once per view."""
        self.on_unreadable = on_unreadable
        missing, tried = self.missing(items), set[tuple[int, int]]()
        if not missing:
            return
        self._refuse_full_disk(sum(len(self._items_of(block)) for _, block in missing))
        prefix, total = self._fast_prefix(), len(self.files) * self._num_images(items)
        while missing:
            done = total - sum(len(self._items_of(block)) for _, block in missing)
            view, blocks = missing[0][0], [b for v, b in missing if v == missing[0][0]]
            start = os.getpid() % len(blocks)  # processes that share the work begin apart
            group = sorted([*blocks[start:], *blocks[:start]][:GROUP])
            for count in self._fill(view, group, prefix, workers, on_unreadable):
                done += count
                if progress is not None:
                    progress(done, total)
            tried |= {(view, block) for block in group}
            missing = [place for place in self.missing(items) if place not in tried]

    def training_batches(
        self,
        sampler: Sampler,
        epoch: int,
        seed: int,
        skip: int = 0,
        fraction: Callable[[int], slice] = slice,
    ) -> Iterator[Batch]:
        """One epoch of the sampler's batches, less the first `skip`; (seed, epoch, batch) draws the
        view of each image. `share`: the wanted part of a batch of so many images."""
        sampler.set_epoch(epoch)

        def orders() -> Iterator[tuple[IntArray, IntArray]]:
            for number, indices in enumerate(sampler):
                if number >= skip:
                    rng = np.random.default_rng((seed, epoch, number))
                    augmentations = rng.integers(len(self.files), size=len(indices))
                    own = fraction(len(indices))
                    yield np.array(indices)[own], augmentations[own]

        return self._read_ahead(orders())

    def evaluation_batches(self, items: IntArray, batch_size: int) -> Iterator[Batch]:
        """The first view of items, in their order."""
        starts = range(0, len(items), batch_size)
        chunks = (items[start : start + batch_size] for start in starts)
        return self._read_ahead((chunk, np.zeros(len(chunk), dtype=np.int64)) for chunk in chunks)

    def _fill(
        self,
        view: int,
        blocks: Sequence[int],
        prefix: FrozenLayers,
        workers: int,
        on_unreadable: OnUnreadable | None,
    ) -> Iterator[int]:
        """Writes rising blocks of one view; yields how many images each has."""
        errors: list[UnreadableImageError] = []  # of the block that has just been read
        note = None if on_unreadable is None else errors.append
        self.files[view].prepare()
        items = np.concatenate([self._items_of(block) for block in blocks])
        for block, batch in zip(blocks, self._images(view, items, workers, note), strict=True):
            mark = WITH_STAND_INS if errors else WHOLE
            self.files[view].write(block, self._packed(prefix.run(batch.images)), mark)
            while errors and on_unreadable is not None:
                on_unreadable(errors.pop(0))
            yield len(batch.images)

    def _read_ahead(self, orders: Iterable[Order]) -> Iterator[Batch]:
        self.built |= np.stack([file.done() for file in self.files])
        with prefetch.workers(1) as start:

            def begin(order: Order) -> Callable[[], Batch]:
                if not self.built[order[1], order[0] // BLOCK].all():
                    message = "this activation cache is not built yet: call build(items) first"
                    raise ValueError(message)
                return partial(self._whole, order, start(partial(self._read, *order)))

            yield from prefetch.in_order(begin, orders, AHEAD)

    def _whole(self, order: Order, read: Callable[[], Batch | None]) -> Batch:
        batch = read()
        return self._mended(*order) if batch is None else batch

    def _mended(self, indices: IntArray, augmentations: IntArray) -> Batch:
        """A batch some of whose blocks were lost or damaged since they were built: they, and what
        else is gone, are made again as they were."""
        for _ in range(ATTEMPTS):
            for view in np.unique(augmentations).tolist():
                _, lost = self.files[view].read(indices[augmentations == view])
                missing = np.flatnonzero(self.built[view] & ~self.files[view].done())
                if blocks := sorted({*lost, *missing.tolist()}):
                    self.warn(
                        f"{len(blocks)} of {int(self.built[view].sum())} blocks of activations in "
                        f"{self.files[view].folder} were lost or damaged: they are made again"
                    )
                    deque(
                        self._fill(view, blocks, self._fast_prefix(), 0, self.on_unreadable),
                        maxlen=0,
                    )
            batch = self._read(indices, augmentations)
            if batch is not None:
                return batch
        raise OSError(f"what is written to {self.root} does not stay: UNSEEN_CACHE names another")

    def _read(self, indices: IntArray, augmentations: IntArray) -> Batch | None:
        """None if something of it is lost or damaged."""
        result = np.empty(len(indices), dtype=self.files[0].record)
        for view in np.unique(augmentations):
            here = augmentations == view
            result[here], lost = self.files[view].read(indices[here])
            if lost:
                return None
        labels = torch.from_numpy(self.augmentations.dataset.labels[indices])
        return Batch(_unpacked(result), labels, torch.from_numpy(indices))

    def _packed(self, activations: Tensor) -> NDArray[Any]:  # [n] records
        values = _to_file(activations).float().cpu().numpy()
        if not np.isfinite(values).all():
            raise ValueError(f"activations at {self.prefix.layer} are not finite: see the weights")
        records = np.empty(len(values), dtype=self.files[0].record)
        over = tuple(range(1, max(2, values.ndim - 1)))  # places; all of it for a vector
        largest = np.abs(values).max(axis=over, keepdims=True)
        scale = np.where(largest > 0, largest, np.float32(1)) / np.float32(_LARGEST)
        records["scale"] = scale.reshape(records["scale"].shape)
        records["values"] = np.rint(values / scale)
        return records

    def _items_of(self, block: int) -> IntArray:
        return np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self.augmentations.dataset)))

    def _num_images(self, items: IntArray) -> int:
        """Of the blocks in which the items lie."""
        return sum(len(self._items_of(int(block))) for block in blocks_of(items))

    def _images(
        self, view: int, items: IntArray, workers: int, on_unreadable: OnUnreadable | None
    ) -> Iterator[Batch]:
        return evaluation_batches(
            self.augmentations.dataset,
            items,
            OneAugmentation(self.augmentations.transform, view),
            BLOCK,
            workers=workers,
            on_unreadable=on_unreadable,
            stand_in=self.augmentations.stand_in,
        )

    def _few(self, count: int) -> Tensor:
        """The first images, for shapes and times: a broken one matters only in the build."""
        some = np.arange(min(count, len(self.augmentations.dataset)))
        return next(self._images(0, some, 0, lambda error: None)).images

    def _fast_prefix(self) -> FrozenLayers:
        """What is kept is rounded anyway."""
        return self.prefix.faster(self._few(2))

    def _seconds_per_image(self) -> float:
        """A few batches, read and computed, after one that allocates and warms up. On a CPU
        processor time counts: whatever else the machine does at the moment does not."""
        prefix = self._fast_prefix()
        on_cpu = prefix.run(self._few(TRIED)).device.type == "cpu"
        time_budget = time.process_time if on_cpu else time.perf_counter
        began = time_budget()
        tried = [len(prefix.run(self._few(TRIED)).cpu()) for _ in range(TRIALS)]
        return (time_budget() - began) / sum(tried) / (torch.get_num_threads() if on_cpu else 1)

    def _refuse_full_disk(self, num_images: int) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        needed = num_images * self.files[0].record.itemsize
        free = shutil.disk_usage(self.root).free
        if needed > free:
            raise OSError(
                f"the activation cache needs {needed / 1e9:.1f} GB where {free / 1e9:.1f} GB are "
                f"free, in {self.root}: cut later, or keep fewer views"
            )


@dataclass(frozen=True)
class ActivationLoader:
    """The batches of a run, from a cache. share: as of `ImageLoader`."""

    cache: ActivationCache
    seed: int
    fraction: Callable[[int], slice]

    def training_batches(self, sampler: Sampler, epoch: int, skip: int) -> Iterator[Batch]:
        return self.cache.training_batches(sampler, epoch, self.seed, skip, self.fraction)


@dataclass(frozen=True)
class OneAugmentation:
    """A transform whose random choices depend on image and view alone: runs share them."""

    transform: Transform
    view: int

    def __call__(self, image: LazyImage | Image.Image, rng: np.random.Generator) -> Tensor:
        of_image = rng.integers(2**32, size=4).tolist()
        return self.transform(image, np.random.default_rng([self.view, *of_image]))


def _record(shape: tuple[int, ...]) -> np.dtype[Any]:
    """One image's values, whole numbers with a scale per channel (a vector has one)."""
    scales = (shape[-1],) if len(shape) > 1 else (1,)
    return np.dtype([("scale", "<f4", scales), ("values", "<i2", shape)])


def _unpacked(records: NDArray[Any]) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(records["values"])).float()
    scale = torch.from_numpy(np.ascontiguousarray(records["scale"]))  # [n, channels or 1]
    values *= scale.view(len(scale), *[1] * (values.ndim - 2), -1)
    return values.permute(0, 3, 1, 2) if values.ndim == 4 else values


def _to_file(activations: Tensor) -> Tensor:
    """Maps with their channels last, anything else as it is."""
    return activations.permute(0, 2, 3, 1) if activations.ndim == 4 else activations

"""Frozen layers run once: the activations at a cut, on disk, for every picture and augmented view.

    cut = cut_network(network, "blocks.5")
    views = Views(dataset, items, training_transform, count=4, seed=0)
    cache = ActivationCache(folder, cut.prefix, views)
    print(cache.plan())                       # size and time before anything starts
    cache.build(workers=2)                    # goes on where it was stopped
    for batch in cache.training_batches(sampler, epoch):
        output = cut.rest(batch.images)

A cache lives in a folder named after a hash of everything it depends on: weights before the cut,
data, items, transform, views, seed and precision. Other weights or pictures have another name, so a
stale cache is never found; what lies under the right name but does not fit is made again.

Precision: float32 keeps what the prefix gives; against an uncached run only the order of sums may
differ, since convolutions round otherwise in batches of another size. float16 halves the file, lets
batch norms be folded, and rounds values by 2^-11. Gradients then move by about 0.05 % behind smooth
activations, but a ReLU whose input is nearly 0 may flip, which moves them more: EfficientNet-Lite0
on CUB pictures, batches of 16, 0.4 % of the whole gradient when cut at blocks.5 and up to 1.3 % at
blocks.3, single layers up to 5 %. Choose float32 where a run must match an uncached one.

Maps are kept with their channels last, as the convolutions after the cut want them.
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.contracts import Batch, Dataset, IntArray, Sampler
from unseen.data.pictures.crops import Picture
from unseen.data.pictures.loader import evaluation_batches
from unseen.data.pictures.transforms import Transform
from unseen.networks.activation_file import BLOCK, ActivationFile
from unseen.networks.folding import folded
from unseen.networks.split import Prefix

AHEAD = 2  # batches read while one is computed on
LAYOUT = 1  # raise when the files change their meaning
DTYPES = ("float16", "float32")


@dataclass(frozen=True)
class Views:
    """What is kept: items of a data set under a transform, `count` times drawn anew."""

    dataset: Dataset
    items: IntArray
    transform: Transform
    count: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or len(self.items) < 1:
            raise ValueError(f"need items and at least 1 view, got {len(self.items)}, {self.count}")
        if len(np.unique(self.items)) != len(self.items):
            raise ValueError("items must not repeat")

    def key(self) -> dict[str, Any]:
        items = hashlib.sha256(np.ascontiguousarray(self.items, dtype=np.int64).tobytes())
        return {
            "data": self.dataset.fingerprint(),
            "items": items.hexdigest()[:32],
            "transform": f"{type(self.transform).__module__}.{self.transform!r}",
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Plan:
    """What building a cache costs."""

    folder: Path
    num_bytes: int
    num_pictures: int
    num_missing: int
    seconds: float

    def __str__(self) -> str:
        size = f"{self.num_bytes / 1e6:,.0f} MB in {self.folder} (safe to delete)"
        if not self.num_missing:
            return f"frozen layers: {self.num_pictures:,} pictures are ready, {size}"
        done = self.num_pictures - self.num_missing
        time_left = f"{self.seconds / 60:.0f} min" if self.seconds > 90 else f"{self.seconds:.0f} s"
        return (
            f"frozen layers: {done:,} of {self.num_pictures:,} pictures are ready, "
            f"about {time_left} for the others; {size}"
        )


class ActivationCache:
    """Activations of a frozen prefix in a memory-mapped file."""

    def __init__(self, root: Path, prefix: Prefix, views: Views, dtype: str = "float16") -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        self.prefix, self.views = prefix, views
        key = views.key() | {"weights": prefix.fingerprint(), "layout": LAYOUT}
        name = json.dumps(key | {"views": views.count, "dtype": dtype}, sort_keys=True)
        folder = root / hashlib.sha256(name.encode()).hexdigest()[:24]
        shape = tuple(_to_file(self._run(prefix, self._few(1))).shape[1:])
        self.file = ActivationFile(folder, key, views.count, len(views.items), shape, dtype)
        self._place = np.full(len(views.dataset), -1, dtype=np.int64)  # item -> row
        self._place[views.items] = np.arange(len(views.items))

    def plan(self) -> Plan:
        """Size, and time for what is missing, from a trial with a few pictures."""
        missing = sum(len(self._items_of(block)) for _, block in self.file.missing())
        seconds = missing * self._seconds_per_picture() if missing else 0.0
        pictures = self.views.count * len(self.views.items)
        return Plan(self.file.folder, self.file.num_bytes, pictures, missing, seconds)

    def build(self, workers: int = 0, progress: Callable[[int, int], None] | None = None) -> None:
        """Computes what is missing, block by block, and tells (pictures done, pictures in all)."""
        missing = self.file.missing()
        if not missing:
            return
        self.file.prepare()
        total = self.views.count * len(self.views.items)
        done = total - sum(len(self._items_of(block)) for _, block in missing)
        prefix = self._fast_prefix()
        for view in sorted({view for view, _ in missing}):
            blocks = [block for v, block in missing if v == view]
            items = np.concatenate([self._items_of(block) for block in blocks])
            for block, batch in zip(blocks, self._pictures(view, items, workers), strict=True):
                self.file.write(view, block, self._to_store(self._run(prefix, batch.images)))
                done += len(batch.images)
                if progress is not None:
                    progress(done, total)

    def training_batches(self, sampler: Sampler, epoch: int) -> Iterator[Batch]:
        """One epoch of the sampler's batches; (seed, epoch) draws the view of each picture."""
        sampler.set_epoch(epoch)
        rng = np.random.default_rng((self.views.seed, epoch))

        def orders() -> Iterator[tuple[IntArray, IntArray]]:
            for indices in sampler:
                yield np.array(indices), rng.integers(self.views.count, size=len(indices))

        return self._read_ahead(orders())

    def evaluation_batches(self, items: IntArray, batch_size: int) -> Iterator[Batch]:
        """The first view of items, in their order."""
        starts = range(0, len(items), batch_size)
        chunks = (items[start : start + batch_size] for start in starts)
        return self._read_ahead((chunk, np.zeros(len(chunk), dtype=np.int64)) for chunk in chunks)

    def _read_ahead(self, orders: Iterable[tuple[IntArray, IntArray]]) -> Iterator[Batch]:
        values = self.file.values()
        waiting: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="activations") as reader:
            for order in orders:
                waiting.append(reader.submit(self._read, values, *order))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _read(self, values: NDArray[Any], indices: IntArray, views: IntArray) -> Batch:
        rows = self._place[indices]
        if (rows < 0).any():
            raise ValueError(f"items {indices[rows < 0][:5].tolist()} are not in this cache")
        found = torch.from_numpy(values[views, rows]).float()
        activations = found.permute(0, 3, 1, 2) if found.ndim == 4 else found
        labels = torch.from_numpy(self.views.dataset.labels[indices])
        return Batch(activations, labels, torch.from_numpy(indices))

    def _to_store(self, activations: Tensor) -> NDArray[Any]:
        values = _to_file(activations).cpu()
        largest = float(values.abs().amax())
        if not largest <= float(np.finfo(self.file.dtype).max):
            raise ValueError(
                f"activations at {self.prefix.layer} reach {largest:.3g}, which {self.file.dtype} "
                "cannot hold: keep the cache in float32, or look at the weights"
            )
        stored: NDArray[Any] = values.numpy()
        return stored

    def _items_of(self, block: int) -> IntArray:
        return self.views.items[block * BLOCK : (block + 1) * BLOCK]

    def _pictures(self, view: int, items: IntArray, workers: int) -> Iterator[Batch]:
        transform = OneView(self.views.transform, self.views.seed, view)
        return evaluation_batches(self.views.dataset, items, transform, BLOCK, workers=workers)

    def _few(self, count: int) -> Tensor:
        return next(self._pictures(0, self.views.items[:count], 0)).images

    def _run(self, prefix: torch.nn.Module, images: Tensor) -> Tensor:
        activations: Tensor = prefix(images.to(next(self.prefix.parameters()).device))
        return activations

    def _fast_prefix(self) -> torch.nn.Module:
        """Batch norms folded where rounding does not matter: float32 is to be exact."""
        if self.file.dtype == "float32":
            return self.prefix
        return folded(self.prefix, self._few(2).to(next(self.prefix.parameters()).device))

    def _seconds_per_picture(self) -> float:
        """Reading and computing one after the other: an upper bound where workers read ahead."""
        prefix, began = self._fast_prefix(), time.perf_counter()
        few = self._few(8)
        self._run(prefix, few)
        return (time.perf_counter() - began) / len(few)


@dataclass(frozen=True)
class OneView:
    """A transform whose random choices depend on picture, seed and view alone."""

    transform: Transform
    seed: int
    view: int

    def __call__(self, picture: Picture | Image.Image, rng: np.random.Generator) -> Tensor:
        of_picture = rng.integers(2**32, size=4).tolist()
        return self.transform(picture, np.random.default_rng([self.seed, self.view, *of_picture]))


def _to_file(activations: Tensor) -> Tensor:
    """Maps with their channels last, anything else as it is."""
    return activations.permute(0, 2, 3, 1) if activations.ndim == 4 else activations

"""An index of images, opened for reading: nearest images, their metadata and thumbnails.

    index = Index.open("birds.index")
    matches = index.search(model.embed("query.jpg"), k=10)
    index.image(matches.ids[0, 0]).path

Opening maps files into memory and reads next to nothing. Any number of processes may read while
one writes (`writer.py`): a reader keeps the index it opened, `newer()` says if there is a later
one. Exact up to 200,000 images; above, faiss (`backends/approximate.py`); or a vector
backend outside the folder: Milvus, PostgreSQL (`backends/external.py`).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.space import require_finite, to_sphere
from unseen.search import manifest as manifests
from unseen.search.backends.approximate import Approximate
from unseen.search.backends.by_name import external_backend
from unseen.search.backends.exact import Exact, Mask, Nearest, best_of
from unseen.search.backends.external import ExternalBackend
from unseen.search.filters import MetadataTable
from unseen.search.manifest import DamagedError, Manifest
from unseen.search.segment import ID, SERIAL, VECTORS, Metadata, NewImage, Segment

TRIES = 5  # a writer may tidy away what the manifest just read still named

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class IndexedImage:
    """An image in an index. `label` is None where nobody said; compatible: its vector
    comes from an older model (`upgrade.py`)."""

    id: int
    path: str
    label: str | None
    compatible: bool = False


@dataclass(frozen=True)
class Neighbors:
    """The nearest images of each query, nearest first; id -1 where there are no more.
    compared_twice: share of pairs, first in integers, then in floats."""

    ids: Ids  # [Q, k]
    similarities: NDArray[np.float32]  # [Q, k]: cosine, or minus the squared distance
    compared_twice: float = 0.0


class Index:
    """The images of an index and their vectors: exact search, filters, metadata.

    An open index does not change; `newer` says whether a writer has changed the one on disk.

    Args:
        path: The folder. `Index.open(path)` reads the manifest, too.
        manifest: What stands in its manifest.

    Example:
        >>> from unseen import Index
        >>> index = Index.open("my.index")  # doctest: +SKIP
        >>> index.search(vectors, k=10, where="price < 20").ids  # doctest: +SKIP
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.segments = [Segment(path, entry) for entry in manifest.segments]
        rows = [segment.rows for segment in self.segments]
        self._rows = np.concatenate([np.zeros((0, 4), dtype=np.int64), *rows])
        self._starts = np.cumsum([0, *(len(each) for each in rows)])
        self._bounds = self._starts.tolist()
        for segment, start in zip(self.segments, self._starts.tolist(), strict=False):
            segment.rows = self._rows[start : start + len(segment.rows)]  # held once
            if segment.vectors.shape[1] != manifest.model.size:
                raise DamagedError(segment.folder / VECTORS)
        alive = [segment.alive for segment in self.segments]
        self.alive: Mask = np.concatenate(alive) if alive else np.zeros(0, dtype=bool)
        vectors = [segment.vectors for segment in self.segments]
        self.exact = Exact(vectors, manifest.model.normalize)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> "Index":
        """Raises ValueError for a folder that is no index, DamagedError for a damaged one."""
        place = Path(path)
        for left in reversed(range(TRIES)):
            manifest = manifests.read(place)
            try:
                return cls(place, manifest)
            except FileNotFoundError as error:
                if not left or manifests.read(place) == manifest:
                    raise DamagedError(Path(error.filename), "it is missing") from error
        raise AssertionError("the last try returns or raises")

    def newer(self) -> bool:
        """Whether a writer has changed the index since it was opened, or put another there."""
        return manifests.read(self.path) != self.manifest

    def require_whole(self) -> None:
        """Raises DamagedError when a file that is mapped into memory has shrunk since."""
        for segment in self.segments:
            segment.require_whole()

    def __len__(self) -> int:
        return int(self.alive.sum())

    def __contains__(self, id: int) -> bool:
        return id in self._row_of

    @property
    def ids(self) -> Ids:
        """Of all images, in the order in which they came."""
        return self._rows[self.alive, ID]

    def search(
        self,
        vectors: NDArray[np.float32] | Tensor,
        k: int = 10,
        filter: Collection[int] | Ids | None = None,
        where: str | None = None,
    ) -> Neighbors:
        """The k nearest images of each vector [Q, D]: all, those whose ids `filter` holds, those
        that an expression over their metadata is true of (`filters.py`), or both. Under a filter
        every search is exact."""
        self.require_whole()
        queries = self._queries(vectors)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        counter = WorkCounter()
        if filter is None and where is None:
            values, rows = self._nearest(queries, k, counter)
        else:
            values, rows = self.exact.search(queries, k, self._allowed(filter, where), counter)
        if not len(self._rows):
            return Neighbors(rows.numpy(), values.numpy())
        ids = np.where(rows < 0, -1, self._rows[rows.numpy(), ID])
        return Neighbors(ids, values.numpy(), counter.fraction)

    def image(self, id: int) -> IndexedImage:
        """What is known of an image."""
        metadata = self.metadata(id)
        return IndexedImage(int(id), metadata.path, metadata.label, metadata.compatible)

    def thumbnail(self, id: int) -> bytes:
        """A small WebP image, the bytes of a file."""
        segment, row = self._place(id)
        return segment.thumbnail(row)

    def vectors(self, ids: Collection[int] | Ids | None = None) -> NDArray[np.float32]:
        """Vectors [n, D] of some images, or of all in the order of `ids`."""
        self.require_whole()
        if ids is None:
            live = [s.vectors[s.alive] for s in self.segments]
            empty = np.zeros((0, self.manifest.model.size), dtype=np.float32)
            return np.concatenate([empty, *live])
        places = [self._place(id) for id in ids]
        return np.stack([segment.vectors[row] for segment, row in places])

    def metadata(self, id: int) -> Metadata:
        segment, row = self._place(id)
        return segment.metadata(row)

    def row(self, id: int) -> NewImage:
        """All that is known of an image, to be put in again under its id."""
        segment, row = self._place(id)
        segment.require_whole()
        vector, small = segment.vectors[row], segment.thumbnail(row)
        return NewImage(segment.metadata(row), vector, small, int(id))

    def every(self) -> Iterator[tuple[int, Metadata]]:
        """Id and metadata of all images, in the order of `ids`."""
        for segment in self.segments:
            metadata = segment.every_metadata()
            for row in np.flatnonzero(segment.alive).tolist():
                yield int(segment.rows[row, ID]), metadata[row]

    def where(self, expression: str) -> Ids:
        """Ids of images that an expression over `file_name`, `label` and the other columns of their
        metadata is true of: `label = 'robin' and price < 20`."""
        return self._metadata_table.ids(expression)

    @property
    def columns(self) -> list[str]:
        """Names of the metadata that filters know."""
        return list(self._metadata_table.columns)

    @cached_property
    def _metadata_table(self) -> MetadataTable:
        return MetadataTable(self.every())

    @cached_property
    def by_label(self) -> dict[str, Ids]:
        """Labels, sorted, and the ids of the images that have them."""
        result: dict[str, list[int]] = {}
        for id, metadata in self.every():
            if metadata.label is not None:
                result.setdefault(metadata.label, []).append(id)
        return {label: np.array(result[label]) for label in sorted(result)}

    @property
    def labels(self) -> dict[str, int]:
        """Labels and how many images have them."""
        return {label: len(ids) for label, ids in self.by_label.items()}

    def _allowed(self, filter: Collection[int] | Ids | None, where: str | None) -> Mask:
        """Rows that may be found."""
        allowed = self.alive.copy()
        if filter is not None:
            allowed &= np.isin(self._rows[:, ID], np.fromiter(filter, dtype=np.int64))
        if where is not None:
            allowed &= np.isin(self._rows[:, ID], self.where(where))
        return allowed

    def _nearest(self, queries: Tensor, k: int, counter: WorkCounter) -> Nearest:
        """By the vector backend where there is one; what it does not hold, exactly."""
        allowed = None if self.alive.all() else self.alive
        if not (self.manifest.external or self.manifest.approximate):
            return self.exact.search(queries, k, allowed, counter)
        if self.manifest.external:
            request = self._external.search(self, queries, k)
            if request is None:
                return self.exact.search(queries, k, allowed, counter)
            result, last = request, self._external.entry.last_serial
        else:
            result = self._approximate.search(queries, k, allowed)
            last = self._approximate.entry.last_serial
        covered = int(np.searchsorted(self.serials, last, side="right"))
        if covered == len(self.serials):
            return best_of([result], len(queries), k)
        rest = self.alive.copy()
        rest[:covered] = False
        return best_of([result, self.exact.search(queries, k, rest, counter)], len(queries), k)

    @cached_property
    def _approximate(self) -> Approximate:
        assert self.manifest.approximate is not None
        return Approximate(self, self.manifest.approximate)

    @cached_property
    def _external(self) -> ExternalBackend:
        assert self.manifest.external is not None
        return external_backend(self.manifest.external, self.manifest.model)

    def row_vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:  # [*rows.shape, D]
        """Vectors of rows, counted through all segments, dead ones too."""
        flat = rows.ravel()
        made = np.empty((len(flat), self.manifest.model.size), dtype=np.float32)
        for segment, start in zip(self.segments, self._starts.tolist(), strict=False):
            inside = (flat >= start) & (flat < start + len(segment.rows))
            made[inside] = segment.vectors[flat[inside] - start]
        return made.reshape(*rows.shape, made.shape[1])

    def _queries(self, vectors: NDArray[np.float32] | Tensor) -> Tensor:
        queries = torch.as_tensor(vectors).float()
        queries = queries[None] if queries.ndim == 1 else queries
        require_finite(queries, "vectors")
        if queries.shape[1] != self.manifest.model.size:
            raise ValueError(
                f"vectors must have {self.manifest.model.size} numbers, got {queries.shape[1]}"
            )
        return to_sphere(queries) if self.manifest.model.normalize else queries

    @cached_property
    def _row_of(self) -> dict[int, int]:
        live = np.flatnonzero(self.alive)
        return dict(zip(self._rows[live, ID].tolist(), live.tolist(), strict=True))

    def _place(self, id: int) -> tuple[Segment, int]:
        row = self._row_of.get(int(id))
        if row is None:
            raise ValueError(f"{self.path} holds no image with the id {id}")
        number = bisect_right(self._bounds, row) - 1
        return self.segments[number], row - self._bounds[number]

    @property
    def serials(self) -> Ids:
        """Of all rows, dead ones too, rising."""
        return self._rows[:, SERIAL]

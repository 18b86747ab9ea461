"""Approximate search with faiss, for indexes too large to compare a query with everything.

    hnsw     a graph of neighbours over whole vectors (Y. Malkov, D. Yashunin, TPAMI 2018): the
             best recall for its time, chosen while it fits into MEMORY bytes
    ivf_pq   vectors in cells, each packed into some bytes (H. Jégou et al., TPAMI 2011), above

Candidates are compared again with the vectors themselves. The effort at query time is doubled until
the share of the ten nearest images that it finds, against exact search on images of the index,
reaches RECALL; what was measured stays in the manifest.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.core import read_limits
from unseen.core.contracts import Progress
from unseen.core.extras import install_command
from unseen.core.files import flush_folder, sha256, write_bytes
from unseen.search.backends.exact import (
    MOST_EFFORT,
    NEAREST,
    QUERIES,
    RECALL,
    Mask,
    Nearest,
    recall_of,
    similarities,
)
from unseen.search.manifest import APPROXIMATE, ApproximateEntry, DamagedError
from unseen.search.segment import CheckedFile, check

if TYPE_CHECKING:
    from unseen.search.index import Index

Kind = Literal["hnsw", "ivf_pq"]

MEMORY = 2**32
LINKS = 32  # of each vector in the graph
CANDIDATES = {"hnsw": 4, "ivf_pq": 32}  # for each asked for, at least
FIRST_EFFORT = {"hnsw": 64, "ivf_pq": 16}
CHUNK = 4096
COMPARED = 2**15  # candidates at a time


class Approximate:
    """A stored faiss index, over rows found by their serial numbers."""

    def __init__(self, index: "Index", entry: ApproximateEntry) -> None:
        self.folder, self.entry = index.path / APPROXIMATE / entry.name, entry
        self.vectors, self.normalize = index.row_vectors, index.manifest.model.normalize
        self._file = CheckedFile(self.folder / "faiss.index", entry.files["faiss.index"])
        check(self.folder, {"serials.npy": entry.files["serials.npy"]})
        serials = read_limits.load(self.folder / "serials.npy")
        rows = np.searchsorted(index.serials, serials).clip(max=max(0, len(index.serials) - 1))
        self.known = index.serials[rows] == serials if len(index.serials) else serials < 0
        self.rows = rows

    def search(self, queries: Tensor, k: int, allowed: Mask | None) -> Nearest:
        """As the exact store; `allowed` holds for all rows of the index."""
        usable = self.known if allowed is None else self.known & allowed[self.rows]
        wanted = min(len(self.rows), CANDIDATES[self.entry.kind] * max(k, NEAREST))
        places = self._candidates(queries, wanted, None if usable.all() else usable)
        rows = torch.from_numpy(np.where(places < 0, -1, self.rows[places]))  # [Q, wanted]
        return self._resolved(queries, rows, k)

    def _candidates(
        self, queries: Tensor, wanted: int, usable: Mask | None, effort: int | None = None
    ) -> NDArray[np.int64]:
        faiss = _faiss()
        self._file.require_whole()
        selector: dict[str, Any] = {}
        if usable is not None:
            bits = np.packbits(usable, bitorder="little")
            selector["sel"] = faiss.IDSelectorBitmap(bits)
        effort = effort or self.entry.effort
        if self.entry.kind == "hnsw":
            parameters = faiss.SearchParametersHNSW(efSearch=max(effort, wanted), **selector)
        else:
            parameters = faiss.SearchParametersIVF(nprobe=effort, **selector)
        # faiss.contrib.torch_utils, which some packages import, puts a `search` without parameters
        # in the place of the first one and keeps that under another name
        search = getattr(self._opened, "search_numpy", self._opened.search)
        _, places = search(queries.numpy(), wanted, params=parameters)
        result: NDArray[np.int64] = places
        if (result >= len(self.rows)).any():
            raise DamagedError(self._file.path)
        return result

    def _resolved(self, queries: Tensor, rows: Tensor, k: int) -> Nearest:
        """Candidates by their true similarity."""
        values, best = [], []
        some = max(1, COMPARED // rows.shape[1])
        for block, candidates in zip(queries.split(some), rows.split(some), strict=True):
            vectors = torch.from_numpy(self.vectors(candidates.clamp(min=0).numpy()))  # [Q, C, D]
            sim = similarities(block, vectors, self.normalize)
            sim = sim.masked_fill(candidates < 0, -math.inf)
            top = sim.topk(min(k, sim.shape[1]), dim=1)
            values.append(top.values)
            best.append(candidates.gather(1, top.indices))
        return torch.cat(values), torch.cat(best)

    @cached_property
    def _opened(self) -> Any:
        faiss = _faiss()
        try:
            return faiss.read_index(str(self._file.path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise DamagedError(self._file.path) from error


def choose(count: int, size: int) -> tuple[Kind, str]:
    """Which kind of index, and why."""
    needed = count * (4 * size + 8 * LINKS)
    message = f"{count:,} vectors of {size} numbers need {needed / 2**30:.2g} GB as a graph"
    if needed <= MEMORY:
        return "hnsw", f"{message}, which fits into {MEMORY / 2**30:.2g} GB"
    return "ivf_pq", f"{message}, more than {MEMORY / 2**30:.2g} GB: vectors are packed"


def make(index: "Index", name: str, progress: Progress | None = None) -> ApproximateEntry:
    """A faiss index over the live images, with the effort that reaches the recall."""
    faiss = _faiss()
    vectors, serials = index.vectors(), index.serials[index.alive]
    kind, why = choose(*vectors.shape)
    made = _empty(kind, vectors, index.manifest.model.normalize)
    for start in range(0, len(vectors), CHUNK):
        made.add(vectors[start : start + CHUNK])
        if progress is not None:
            progress(min(start + CHUNK, len(vectors)), len(vectors))
    folder = index.path / APPROXIMATE / name
    folder.mkdir(parents=True)
    faiss.write_index(made, str(folder / "faiss.index"))
    np.save(folder / "serials.npy", serials)
    files = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    for file in folder.iterdir():  # flushed before a manifest names them
        write_bytes(file, file.read_bytes())
    flush_folder(folder)
    entry = ApproximateEntry(
        name=name,
        kind=kind,
        why=why,
        last_serial=int(serials[-1]),
        effort=FIRST_EFFORT[kind],
        recall=0.0,
        num_queries=min(QUERIES, len(vectors)),
        files=files,
    )
    return _tuned(index, entry)


def _tuned(index: "Index", entry: ApproximateEntry) -> ApproximateEntry:
    """Doubles the effort until the recall is reached."""
    while True:
        recall = recall_of(index, Approximate(index, entry).search, entry.num_queries)
        entry = entry.model_copy(update={"recall": round(recall, 4)})
        if recall >= RECALL or entry.effort >= MOST_EFFORT:
            return entry
        entry = entry.model_copy(update={"effort": 2 * entry.effort})


def _empty(kind: Kind, vectors: NDArray[np.float32], normalize: bool) -> Any:
    faiss = _faiss()
    metric = faiss.METRIC_INNER_PRODUCT if normalize else faiss.METRIC_L2
    count, size = vectors.shape
    if kind == "hnsw":
        made = faiss.IndexHNSWFlat(size, LINKS, metric)
        made.hnsw.efConstruction = 80
        return made
    cells = max(1, min(round(4 * math.sqrt(count)), count // 39))
    pieces = next(p for p in range(max(1, size // 4), 0, -1) if size % p == 0)
    bits = 8 if count >= 39 * 256 else 4
    made = faiss.index_factory(size, f"IVF{cells},PQ{pieces}x{bits}", metric)
    sample = np.random.default_rng(0).permutation(count)[: 64 * cells + 256 * 64]
    made.train(np.ascontiguousarray(vectors[np.sort(sample)]))
    return made


def _faiss() -> Any:
    try:
        import faiss  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"large indexes need faiss: {install_command('search')}") from error
    return faiss

"""The space neighbours are sought in: cosine of unit embeddings, or Euclidean distance of raw ones.

A `Space` holds the embeddings twice: as two matrices whose product is the similarity (fast, in
the embeddings' own precision), and as they came, from which it can say the similarity of chosen
pairs in float64. The fast numbers select, the float64 ones decide where those are too close:

    similarity   cos(x, y), or -|x - y|^2 with `normalize=False`
    tie          two float64 similarities that agree after rounding to a multiple of `grid`
    tolerance    two fast similarities further apart than this are no tie and in the right order

The grid is 2^-20 for cosines: wide enough to hold copies of an image together, whatever order a
matrix product sums in, and far below any difference that means something. Raw embeddings have no
scale of their own, so their grid is 2^-28 of the largest squared distance from their mean.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unseen.core.geometry import full_precision, squared_distance
from unseen.core.names import few

ERROR = (
    2.0**-20
)  # of a float32 product of unit vectors; measured: up to 0.63 of it at 4,096 numbers


@dataclass(frozen=True)
class Space:
    """Queries and gallery, ready to be multiplied: `left[i] @ right[j]` is a similarity."""

    left: Tensor  # [Q, D']
    right: Tensor  # [G, D']
    queries: Tensor  # [Q, D] as given
    gallery: Tensor  # [G, D] as given; the same object as `queries` in self-retrieval
    center: Tensor | None  # [D] float64; None for cosines
    grid: float
    tolerance: float

    @property
    def symmetric(self) -> bool:
        """Every item asks for its neighbours among all the others."""
        return self.gallery is self.queries

    def of_queries(self, rows: slice) -> "Space":
        """Some of the queries against the whole gallery; no longer symmetric."""
        return replace(self, left=self.left[rows], queries=self.queries[rows])

    def prepared(self, rows: Tensor) -> Tensor:
        """Rows in float64: unit vectors, or raw ones around their mean."""
        rows = rows.double()
        return to_sphere(rows) if self.center is None else rows - self.center

    def exact(self, query: Tensor, items: Tensor) -> Tensor:
        """Float64 similarities [R, K] of queries [R] and gallery items [R, K], in grid units."""
        x = self.prepared(self.queries.index_select(0, query))[:, None]  # [R, 1, D]
        places = items.clamp(min=0).flatten()
        y = self.prepared(self.gallery.index_select(0, places)).unflatten(0, items.shape)
        sim = (x * y).sum(2) if self.center is None else -(x - y).square().sum(2)
        return torch.round(sim / self.grid)

    def exact_rows(self, query: Tensor, columns: slice = slice(None)) -> Tensor:
        """Float64 similarities [R, G] of queries [R] and part of the gallery, in grid units."""
        x = self.prepared(self.queries[query])
        parts = []
        for rows in self.gallery[columns].split(4096):
            y = self.prepared(rows)
            parts.append(x @ y.T if self.center is None else -squared_distance(x, y))
        return torch.cat(parts, dim=1).div_(self.grid).round_()


def to_sphere(x: Tensor) -> Tensor:
    """Unit rows at any scale; a zero row stays zero."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if len(norm) and not (
        norm.amin() > 1e-15 and norm.amax() < 1e15
    ):  # squares may over- or underflow
        largest = x.abs().amax(dim=1, keepdim=True)
        x = x / torch.where(largest > 0, largest, 1.0)
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=0.5)  # 0 or at least 1
    return x / norm


def make_space(embeddings: Tensor, gallery: Tensor | None = None, normalize: bool = True) -> Space:
    """Self-retrieval when there is no gallery. Raises ValueError unless every number is finite."""
    require_finite(embeddings, "embeddings")
    queries = full_precision(embeddings.detach())
    items = queries
    if gallery is not None:
        require_finite(gallery, "gallery_embeddings")
        if gallery.shape[1] != embeddings.shape[1]:
            raise ValueError(
                "gallery_embeddings must have as many columns as embeddings, "
                f"{embeddings.shape[1]}, got {gallery.shape[1]}"
            )
        items = full_precision(gallery.detach()).to(queries.dtype)
    if normalize:
        left = to_sphere(queries)
        right = left if gallery is None else to_sphere(items)
        return Space(left, right, queries, items, None, 2.0**-20, 2.0**-20 + 2 * ERROR)
    center = items.double().mean(dim=0)
    scale = 0.0
    for rows in (*queries.split(4096), *items.split(4096)):
        scale = max(scale, float((rows.double() - center).square().sum(1).amax()))
    left, right = _augmented(queries, center, True), _augmented(items, center, False)
    tiny = torch.finfo(torch.float64).tiny  # all items in one place: any grid will do
    return Space(left, right, queries, items, center, 2.0**-28 * scale + tiny, 8 * ERROR * scale)


def require_finite(embeddings: Tensor, name: str) -> None:
    """NaN compares as false with everything and would quietly win or lose every comparison."""
    if embeddings.ndim != 2:
        raise ValueError(f"{name} must be a matrix [items, size], got {list(embeddings.shape)}")
    if not embeddings.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {embeddings.dtype}")
    bad = non_finite_rows(embeddings)
    if len(bad):
        raise ValueError(
            f"{name}: {len(bad)} of {len(embeddings)} rows hold NaN or infinity (rows "
            f"{few(bad.tolist())}); leave them out, or mend what made them"
        )


def non_finite_rows(embeddings: Tensor) -> Tensor:
    """Positions of rows with NaN or infinity."""
    if torch.isfinite(embeddings.sum()):  # one pass; only bad values, or huge ones, spoil a sum
        return torch.zeros(0, dtype=torch.int64, device=embeddings.device)
    return (~torch.isfinite(embeddings).all(dim=1)).nonzero()[:, 0]


@contextmanager
def precise(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, and float32 products in float32 (no TF32, no bfloat16)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _augmented(x: Tensor, center: Tensor, left: bool) -> Tensor:
    """Two more columns turn the inner product of left and right rows into -|x - y|^2."""
    moved = (x.double() - center).to(x.dtype)
    norm = moved.square().sum(dim=1, keepdim=True)
    one = torch.ones_like(norm)
    return torch.cat([2 * moved, -norm, -one] if left else [moved, one, norm], dim=1)

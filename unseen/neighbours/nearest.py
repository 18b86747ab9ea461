"""The largest entries of each row of a matrix product that is never held: exact, block by block.

Each row keeps a bar: a value that its final list cannot fall below. A block of the product is
first reduced to the maxima of small groups of columns, which cost little beside the product; only
groups whose maximum clears the bar are looked into, and what clears the bar is noted. When the
room for notes is full, the best are kept and the bar rises. In self-retrieval the matrix is
symmetric: each block is computed once and offered twice, to its rows and to its columns.

    time     n^2 D / 2 multiply-adds for self-retrieval, Q G D with a gallery; little else
    memory   the lists (8 bytes x 4 keep x rows), one block, and the two factors
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unseen.neighbours.space import Space

Progress = Callable[[int, int], None]  # (done, total)
Exclude = Callable[[Tensor, slice, slice], None]  # sets forbidden entries of a block to -inf

GROUPS = (16, 4)  # columns per group, powers of two: small groups when many hold something
GROUP = max(GROUPS)
ROOM = 4  # notes per row, in lists


class Best:
    """The `keep` largest values of each row so far, among notes not yet compared."""

    def __init__(self, num_rows: int, keep: int, like: Tensor) -> None:
        self.keep = keep
        width = ROOM * keep + GROUP
        self.values = like.new_full((num_rows, width), -math.inf)
        self.columns = torch.full((num_rows, width), -1, dtype=torch.int32, device=like.device)
        self.used = torch.zeros(num_rows, dtype=torch.int64, device=like.device)
        self.bar = like.new_full((num_rows,), -math.inf)

    def offer(self, rows: slice, block: Tensor, first_column: int) -> None:
        """Notes what a block [R, C] holds for these rows; the block may be a transposed view."""
        bar = self.bar[rows]
        if bool((bar == -math.inf).all()):
            bar.copy_(_first_bar(block, self.keep))
            if bool((bar == -math.inf).all()):
                self._merge(rows, block, first_column)
                return
        row, column, value = _above(block, bar)
        if not len(row):
            return
        count = torch.bincount(row, minlength=len(bar))
        used, width = self.used[rows], self.values.shape[1]
        if int((used + count).max()) > width:
            self._compact(rows)
            if int((used + count).max()) > width:
                self._merge(rows, block, first_column)
                return
        row_start = torch.arange(rows.start, rows.stop, device=row.device) * width
        first_place = row_start + used - (count.cumsum(0) - count)  # less the notes of rows before
        place = first_place[row] + torch.arange(len(row), device=row.device)
        self.values.view(-1)[place] = value
        self.columns.view(-1)[place] = (column + first_column).int()
        used += count
        if int(used.sum()) > 2 * self.keep * len(used):  # the bar is worth raising
            self._compact(rows)

    def sorted(self, rows: slice) -> tuple[Tensor, Tensor]:  # two [R, keep]
        """The lists, largest first; column -1 where there was nothing left."""
        self._compact(rows)
        values, order = self.values[rows, : self.keep].sort(dim=1, descending=True, stable=True)
        columns = self.columns[rows, : self.keep].gather(1, order).long()
        return values, columns.masked_fill_(values == -math.inf, -1)

    def _compact(self, rows: slice) -> None:
        """Keeps the best notes and raises the bar to the last of them."""
        width = max(self.keep, int(self.used[rows].max()))
        values, order = self.values[rows, :width].topk(self.keep, dim=1, sorted=False)
        self._store(rows, values, self.columns[rows].gather(1, order), width)

    def _merge(self, rows: slice, block: Tensor, first_column: int) -> None:
        """Takes in a whole block: when there is no bar yet, or more hits than room."""
        columns = torch.arange(
            first_column, first_column + block.shape[1], dtype=torch.int32, device=block.device
        )
        values = torch.cat([self.values[rows, : self.keep], block], dim=1)
        columns = torch.cat([self.columns[rows, : self.keep], columns.expand(block.shape)], dim=1)
        values, order = values.topk(self.keep, dim=1, sorted=False)
        self._store(rows, values, columns.gather(1, order), self.keep)

    def _store(self, rows: slice, values: Tensor, columns: Tensor, width: int) -> None:
        self.values[rows, : self.keep] = values
        self.values[rows, self.keep : width] = -math.inf
        self.columns[rows, : self.keep] = columns
        self.used[rows] = self.keep
        self.bar[rows] = values.amin(dim=1)


def _first_bar(block: Tensor, keep: int) -> Tensor:  # [R]
    """A little below the `keep`-th largest of group maxima, which as many entries reach.

    -inf where the block has too few columns for it to be worth anything.
    """
    maxima = _folded(block, max(2 * keep, block.shape[1] // GROUP))
    if maxima.shape[1] < 2 * keep:
        return block.new_full((len(block),), -math.inf)
    bar = maxima.topk(keep, dim=1, sorted=False).values.amin(dim=1)
    return torch.nextafter(bar, torch.full_like(bar, -math.inf))


def _folded(block: Tensor, least: int) -> Tensor:
    """Maxima of interleaved groups of columns, halved while at least that many groups remain."""
    while block.shape[1] % 2 == 0 and block.shape[1] // 2 >= least:
        block = torch.maximum(*block.chunk(2, dim=1))
    return block


def _above(block: Tensor, bar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of the entries above their row's bar, ordered by row."""
    num_rows, num_columns = block.shape
    for size in GROUPS:
        num_groups = num_columns // size
        if block.is_contiguous():  # groups interleave: column c is in group c % num_groups
            grouped = block.view(num_rows, size, num_groups).transpose(1, 2)
            step, stride = 1, num_groups
            maxima = _folded(block, num_groups)  # fast for every width; amax is not
        else:
            by_column = block.T.view(num_groups, size, num_rows)
            grouped = by_column.permute(2, 0, 1)
            step, stride = size, 1
            maxima = by_column.amax(dim=1).T
        row, group = (maxima > bar[:, None]).nonzero(as_tuple=True)
        if len(row) * size * 4 <= block.numel():
            entries = grouped[row, group]  # [hits, size]
            hit, inside = (entries > bar[row, None]).nonzero(as_tuple=True)
            return row[hit], group[hit] * step + inside * stride, entries[hit, inside]
    row, column = (block > bar[:, None]).contiguous().nonzero(as_tuple=True)
    return row, column, block[row, column]


def nearest(
    space: Space,
    keep: int,
    *,
    exclude: Exclude | None = None,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor]:  # two [Q, keep]
    """Largest similarities of each query, largest first, and their gallery positions (-1: none).

    A query of a symmetric space is never its own neighbour; `exclude` may forbid further pairs.
    Lists that would need more than `memory` bytes are made panel by panel, without the symmetry.
    """
    product = _Product(space, block, exclude)
    list_bytes = (ROOM * keep + GROUP) * (space.left.element_size() + 4)
    if space.symmetric and len(product.left) * list_bytes <= memory:
        return _by_triangle(product, keep, progress)
    return _by_rows(product, keep, progress)


class _Product:
    """Blocks of the similarity matrix, with -inf wherever there is no neighbour to be had."""

    def __init__(self, space: Space, block: int, exclude: Exclude | None) -> None:
        self.num_rows, self.num_columns = len(space.left), len(space.right)
        self.symmetric, self.exclude = space.symmetric, exclude
        self.left, self.height = _padded(space.left, block)
        self.right, self.width = self.left, self.height
        if space.right is not space.left:
            self.right, self.width = _padded(space.right, block)
        self.rows = [slice(i, i + self.height) for i in range(0, len(self.left), self.height)]
        self.columns = [slice(i, i + self.width) for i in range(0, len(self.right), self.width)]
        self._block = self.left.new_empty(self.height, self.width)

    def __call__(self, rows: slice, columns: slice) -> Tensor:  # [height, width], overwritten next
        block = torch.mm(self.left[rows], self.right[columns].T, out=self._block)
        block[:, max(self.num_columns - columns.start, 0) :] = -math.inf
        block[max(self.num_rows - rows.start, 0) :] = -math.inf
        if self.symmetric and rows == columns:
            block.fill_diagonal_(-math.inf)
        if self.exclude is not None:
            self.exclude(block, rows, columns)
        return block


def _by_triangle(product: _Product, keep: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """Blocks on and above the diagonal; the diagonal first, since it gives every row its bar."""
    best = Best(len(product.left), keep, product.left)
    panels = product.rows
    walk = [(rows, rows) for rows in panels]
    walk += [(rows, columns) for i, rows in enumerate(panels) for columns in panels[i + 1 :]]
    for done, (rows, columns) in enumerate(walk, start=1):
        block = product(rows, columns)
        best.offer(rows, block, columns.start)
        if rows != columns:
            best.offer(columns, block.T, rows.start)
        if progress is not None:
            progress(done, len(walk))
    lists = [best.sorted(rows) for rows in panels]
    return _joined(lists, product.num_rows)


def _by_rows(product: _Product, keep: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """One panel of queries after the other, each against the whole gallery."""
    lists = []
    everything = slice(0, product.height)
    total = len(product.rows) * len(product.columns)
    for i, rows in enumerate(product.rows):
        best = Best(product.height, keep, product.left)
        for j, columns in enumerate(product.columns, start=1):
            best.offer(everything, product(rows, columns), columns.start)
            if progress is not None:
                progress(i * len(product.columns) + j, total)
        lists.append(best.sorted(everything))
    return _joined(lists, product.num_rows)


def _joined(lists: list[tuple[Tensor, Tensor]], num_rows: int) -> tuple[Tensor, Tensor]:
    values, columns = zip(*lists, strict=True)
    return torch.cat(values)[:num_rows], torch.cat(columns)[:num_rows]


def _padded(x: Tensor, block: int) -> tuple[Tensor, int]:
    """Zero rows added so that equal blocks of about the wanted size, whole groups, cover it."""
    num_blocks = max(1, round(len(x) / block))
    size = math.ceil(len(x) / num_blocks / GROUP) * GROUP
    return torch.nn.functional.pad(x, (0, 0, 0, num_blocks * size - len(x))), size

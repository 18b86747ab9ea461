"""The largest entries of each row of a matrix product that is never held: exact, block by block.

Each row keeps a bar: a value that its final list cannot fall below. Of a block of the product only
what clears the bar is noted, and one comparison with everything else costs little beside the
product. The bar rises with the notes; when the room for notes is full, only the best are kept. In
self-retrieval the matrix is symmetric: each block is computed once and offered twice, to its rows
and to its columns.

    time     n^2 D / 2 multiply-adds for self-retrieval, Q G D with a gallery; little else
    memory   the lists (8 bytes x 4 keep x rows), one block, and the two factors
"""

import math
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from unseen.contracts import Progress
from unseen.neighbours.ordering import above, in_order, kth_largest
from unseen.neighbours.space import Space
from unseen.neighbours.workers import in_parallel

Lists = tuple[Tensor, Tensor]  # values and columns of a panel, two [R, keep]
Exclude = Callable[[Tensor, slice, slice], None]  # sets forbidden entries of a block to -inf

GROUP = 8  # columns that share a maximum in the first bar, a power of two
ROOM = 4  # notes per row, in lists


class Best:
    """The `keep` largest values of each row of a panel so far, among notes not yet compared."""

    def __init__(self, num_rows: int, keep: int, like: Tensor) -> None:
        self.keep, self.width = keep, ROOM * keep + GROUP
        self.values = like.new_full((num_rows, self.width), -math.inf)
        self.columns = torch.full_like(self.values, -1, dtype=torch.int32)
        self.used = torch.zeros(num_rows, dtype=torch.int64, device=like.device)
        self.bar = like.new_full((num_rows,), -math.inf)
        self.row_start = torch.arange(num_rows, device=like.device) * self.width
        self.since_raised = 0
        self.lock = threading.Lock()

    def offer(self, block: Tensor, first_column: int) -> None:
        """Notes what a block [R, C] holds for the rows; the block may be a transposed view."""
        with self.lock:
            if bool((self.bar == -math.inf).all()):
                self.bar = _first_bar(block, self.keep)
                if bool((self.bar == -math.inf).all()):
                    self._merge(block, first_column)
                    return
            row, column, value = above(block, self.bar)
            count = torch.bincount(row, minlength=len(self.bar))
            if int((self.used + count).max()) > self.width:
                self._compact()
                if int((self.used + count).max()) > self.width:
                    self._merge(block, first_column)
                    return
            self._note(row, column + first_column, value, count)

    def sorted(self) -> tuple[Tensor, Tensor]:  # two [R, keep]
        """The lists, largest first, equals by column; column -1 where there was nothing left."""
        width = max(self.keep, int(self.used.max()))
        values, columns = in_order(self.values[:, :width], self.columns[:, :width], self.keep)
        return values, columns.long().masked_fill_(values == -math.inf, -1)

    def _note(self, row: Tensor, column: Tensor, value: Tensor, count: Tensor) -> None:
        first_place = self.row_start + self.used - (count.cumsum(0) - count)
        place = first_place.index_select(0, row) + torch.arange(len(row), device=row.device)
        self.values.view(-1).scatter_(0, place, value)
        self.columns.view(-1).scatter_(0, place, column.int())
        self.used += count
        self.since_raised += len(row)
        if 2 * self.since_raised > self.keep * len(self.used):  # the bar is worth raising
            self.bar = torch.maximum(self.bar, self._last_of_list())
            self.since_raised = 0

    def _last_of_list(self) -> Tensor:  # [R]
        """The `keep`-th largest note of each row."""
        return kth_largest(self.values[:, : max(self.keep, int(self.used.max()))], self.keep)

    def _compact(self) -> None:
        """Keeps the best notes and raises the bar to the last of them."""
        width = max(self.keep, int(self.used.max()))
        values, columns = in_order(self.values[:, :width], self.columns[:, :width], self.keep)
        self.values[:, self.keep : width] = -math.inf
        self._store(values, columns)

    def _merge(self, block: Tensor, first_column: int) -> None:
        """Takes in a whole block: when there is no bar yet, or more hits than room."""
        columns = torch.arange(block.shape[1], dtype=torch.int32, device=block.device)
        values = torch.cat([self.values[:, : self.keep], block], dim=1)
        columns = (columns + first_column).expand(block.shape)
        columns = torch.cat([self.columns[:, : self.keep], columns], dim=1)
        values, order = values.topk(self.keep, dim=1, sorted=False)
        self._store(values, columns.gather(1, order))

    def _store(self, values: Tensor, columns: Tensor) -> None:
        self.values[:, : self.keep] = values
        self.columns[:, : self.keep] = columns
        self.used.fill_(self.keep)
        self.bar = values.amin(dim=1)


def _first_bar(block: Tensor, keep: int) -> Tensor:  # [R]
    """A little below the `keep`-th largest of group maxima, which as many entries reach.

    -inf where the block has too few columns for it to be worth anything.
    """
    maxima = _folded(block, max(2 * keep, block.shape[1] // GROUP))
    if maxima.shape[1] < 2 * keep:
        return block.new_full((len(block),), -math.inf)
    bar = kth_largest(maxima, keep)
    return torch.nextafter(bar, torch.full_like(bar, -math.inf))


def _folded(block: Tensor, least: int) -> Tensor:
    """Maxima of interleaved groups of columns, halved while at least that many groups remain."""
    while block.shape[1] % 2 == 0 and block.shape[1] // 2 >= least:
        block = torch.maximum(*block.chunk(2, dim=1))
    return block


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
    Equals are listed by position, but which of several equals ends a list is left open (evaluation
    settles that by labels). On a CPU, `progress` is told from other threads, one at a time.
    """
    product = _Product(space, block, exclude)
    list_bytes = (ROOM * keep + GROUP) * (space.left.element_size() + 4)
    at_once = space.symmetric and len(product.left) * list_bytes <= memory
    lists = (_by_triangle if at_once else _by_rows)(product, keep, progress)
    values, columns = zip(*lists, strict=True)
    return torch.cat(values)[: len(space.left)], torch.cat(columns)[: len(space.left)]


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
        self._own = threading.local()

    def __call__(self, rows: slice, columns: slice) -> Tensor:
        """A block [height, width], which this thread's next one overwrites."""
        if not hasattr(self._own, "block"):
            self._own.block = self.left.new_empty(self.height, self.width)
        block: Tensor = self._own.block
        multiply = _symmetric_product if self.symmetric and rows == columns else _product
        multiply(self.left[rows], self.right[columns], block)
        block[:, max(self.num_columns - columns.start, 0) :] = -math.inf
        block[max(self.num_rows - rows.start, 0) :] = -math.inf
        if self.symmetric and rows == columns:
            block.fill_diagonal_(-math.inf)
        if self.exclude is not None:
            self.exclude(block, rows, columns)
        return block


def _product(left: Tensor, right: Tensor, out: Tensor) -> None:
    torch.mm(left, right.T, out=out)


def _symmetric_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """The same for three quarters of the work: one corner is another's mirror image."""
    half = len(left) // 2
    _product(left[:half], right, out[:half])
    _product(left[half:], right[half:], out[half:, half:])
    out[half:, :half] = out[:half, half:].T


def _by_triangle(product: _Product, keep: int, progress: Progress | None) -> list[Lists]:
    """Blocks on and above the diagonal, by distance from it, so that threads seldom share rows."""
    count = len(product.rows)
    best = [Best(product.height, keep, product.left) for _ in product.rows]
    tasks = [(i, i + distance) for distance in range(count) for i in range(count - distance)]
    tick = _Ticker(progress, len(tasks))

    def work(task: tuple[int, int]) -> None:
        i, j = task
        block = product(product.rows[i], product.rows[j])
        best[i].offer(block, product.rows[j].start)
        if i != j:
            best[j].offer(block.T, product.rows[i].start)
        tick()

    lists: dict[int, Lists] = {}

    def finish(i: int) -> None:
        lists[i] = best[i].sorted()

    in_parallel(tasks, work, product.left.device)
    in_parallel(range(count), finish, product.left.device)
    return [lists[i] for i in range(count)]


def _by_rows(product: _Product, keep: int, progress: Progress | None) -> list[Lists]:
    """Panels of queries, each against the whole gallery; only finished lists are held."""
    lists: dict[int, Lists] = {}
    tick = _Ticker(progress, len(product.rows) * len(product.columns))

    def work(i: int) -> None:
        best = Best(product.height, keep, product.left)
        for columns in product.columns:
            best.offer(product(product.rows[i], columns), columns.start)
            tick()
        lists[i] = best.sorted()

    in_parallel(range(len(product.rows)), work, product.left.device)
    return [lists[i] for i in range(len(product.rows))]


class _Ticker:
    """Counts finished blocks and tells, one thread at a time."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.lock = threading.Lock()

    def __call__(self) -> None:
        with self.lock:
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total)


def _padded(x: Tensor, block: int) -> tuple[Tensor, int]:
    """Zero rows added so that equal blocks of about the wanted size, whole groups, cover it."""
    num_blocks = max(1, round(len(x) / block))
    size = math.ceil(len(x) / num_blocks / GROUP) * GROUP
    return torch.nn.functional.pad(x, (0, 0, 0, num_blocks * size - len(x))), size

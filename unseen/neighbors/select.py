"""The largest entries of each row of a matrix product that is never held: exact, block by block.

Each row keeps a bar: a value that its final list cannot fall below. Of a block of the product only
what clears the bar is noted, and one comparison with everything else costs little beside the
product. The bar rises with the notes; when the room for notes is full, only the best are kept. In
self-retrieval the matrix is symmetric: each block is computed once and offered twice, to its rows
and to its columns. Where integers are faster than floats, they say what cannot clear the bar, with
proof, and floats are computed of the rest alone (neighbors/certified.py).

    time     n^2 D / 2 multiply-adds for self-retrieval, Q G D with a gallery; little else
    memory   the lists (8 bytes x 4 keep x rows), one block, the two factors, a quarter more as
             integers
"""

import threading
from typing import Literal

import torch
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.neighbors import certified
from unseen.neighbors.block_products import Exclude, Product, WorkCounter
from unseen.neighbors.certified import Integers
from unseen.neighbors.space import Space
from unseen.neighbors.threads import in_parallel
from unseen.neighbors.top_lists import GROUP, ROOM, Best

Lists = tuple[Tensor, Tensor]  # values and items of a panel, two [R, keep]
Precision = Literal["auto", "int8", "float"]  # of the first pass

SMALL = 2**28  # multiply-adds below which integers gain nothing
DEEP = (
    2**17
)  # numbers for each place in a list below which first bars cost more than half a product
LONG = 16  # blocks in a column from which larger ones pay, for integers
LOW, HIGH, WIDE = 256, 768, 2**13  # of blocks that give a good first bar at once
WIDEST = 2**17  # for a few queries: each block is some work of its own


def select(
    space: Space,
    keep: int,
    *,
    exclude: Exclude | None = None,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
    precision: Precision = "auto",
    counter: WorkCounter | None = None,
    cached: Integers | None = None,
    floor: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # two [Q, keep]
    """Largest similarities of each query, largest first, and their gallery positions (-1: none).

    A query of a symmetric space is never its own neighbour; `exclude` may forbid further pairs.
    Lists that would need more than `memory` bytes are made panel by panel, without the symmetry.
    Near-equals are listed as rounding has it, and which of several ends a list is left open: that
    is `resolve`'s. On a CPU, `progress` is told from other threads, one at a time. `precision` is
    for tests: by itself the faster one is taken. `counter`: of the pairs compared. `cached`: the
    gallery's integers, where they are kept from one call to the next; with them, only what lies
    above `floor` [Q] need be listed.
    """
    as_integers = cached is not None or in_integers(space, precision)
    list_bytes = (ROOM * keep + GROUP) * (space.left.element_size() + 4)
    mirrored = space.symmetric and len(space.left) * list_bytes <= memory
    height = width = 2 * block if as_integers and len(space.left) > LONG * block else block
    if as_integers and (not mirrored or space.left.numel() < DEEP * keep):
        mirrored, width = False, WIDE  # better bars are worth more
        width = max(width, min(WIDEST, LOW * WIDE // max(1, len(space.left))))
        # high blocks cost less for each row, and every thread has some
        height = max(LOW, min(HIGH, -(-len(space.left) // torch.get_num_threads())))
    product = Product(space, height, width, exclude, in_integers=as_integers, cached=cached)
    if mirrored:
        lists = _by_triangle(product, keep, progress)
    else:
        lists = _by_rows(product, keep, progress, None if floor is None else floor[product.queries])
    if counter is not None:
        counter.add(product.counter.pairs, product.counter.again)
    values, items = (torch.cat(parts) for parts in zip(*lists, strict=True))
    back = product.queries.argsort()
    return values.index_select(0, back), items.index_select(0, back)


def in_integers(space: Space, precision: Precision = "auto") -> bool:
    """Cosines alone: the squares that stand beside raw embeddings need more than eight bits."""
    if space.center is not None or precision == "float":
        return False
    if precision == "auto" and len(space.left) * len(space.right) * space.left.shape[1] < SMALL:
        return False
    return certified.pays(space.left, measure=precision == "auto")


def _by_triangle(product: Product, keep: int, progress: Progress | None) -> list[Lists]:
    """Blocks on and above the diagonal, by distance from it, so that threads seldom share rows."""
    count = len(product.rows)
    best = [Best(rows.stop - rows.start, keep, product.left) for rows in product.rows]
    tasks = [(i, i + distance) for distance in range(count) for i in range(count - distance)]
    tick = _Ticker(progress, len(tasks))

    def work(task: tuple[int, int]) -> None:
        i, j = task
        product.offer(i, j, best[i], None if i == j else best[j])
        tick()

    lists: dict[int, Lists] = {}

    def finish(i: int) -> None:
        lists[i] = best[i].sorted()

    in_parallel(tasks, work, product.left.device)
    in_parallel(range(count), finish, product.left.device)
    return [lists[i] for i in range(count)]


def _by_rows(
    product: Product, keep: int, progress: Progress | None, floor: Tensor | None = None
) -> list[Lists]:
    """Panels of queries, each against the whole gallery; only finished lists are held."""
    lists: dict[int, Lists] = {}
    tick = _Ticker(progress, len(product.rows) * len(product.columns))

    def work(i: int) -> None:
        rows = product.rows[i]
        best = Best(rows.stop - rows.start, keep, product.left)
        if floor is not None:
            best.bar = floor[rows].clone()
        for j in range(len(product.columns)):
            product.offer(i, j, best)
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

"""Which queries a report shows, and what they found.

Three views, because each alone misleads: a random draw (what to expect), random mistakes (what goes
wrong) and the hardest ones (how bad it gets). Hardest: fewest right of those possible, then
the surest of its wrong first answer. Queries without another image of their class are left out.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.core.contracts import Neighbors
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.retrieve import retrieve
from unseen.reports.stored_run import TestEmbeddings

NEAREST = 8
SHOWN = 10
SEED = 0


@dataclass(frozen=True)
class ResultItems:
    """The nearest test items of every test item. Positions count within the test items."""

    positions: NDArray[np.int64]  # [n, K]; -1 where there are no more items
    similarities: NDArray[np.float64]  # [n, K]
    matches: NDArray[np.bool_]  # [n, K]
    num_relevant: NDArray[np.int64]  # [n]: other items of the class
    cosine: bool  # False: minus the squared distance

    @classmethod
    def empty(cls, num_items: int, depth: int, cosine: bool) -> "ResultItems":
        """Nobody has found anything yet."""
        return cls(
            positions=np.full((num_items, depth), -1),
            similarities=np.full((num_items, depth), -np.inf),
            matches=np.zeros((num_items, depth), dtype=bool),
            num_relevant=np.zeros(num_items, dtype=np.int64),
            cosine=cosine,
        )

    @property
    def askable(self) -> NDArray[np.bool_]:
        """Another item of the class exists."""
        return self.num_relevant > 0

    def closeness(self, query: int, rank: int) -> str:
        """The similarity as shown: cosine, or distance of raw embeddings."""
        value = float(self.similarities[query, rank])
        if not self.cosine:
            return f"d {max(-value, 0.0) ** 0.5:.3g}"
        return f"{value:.2f}" if value < 0.995 else f"{value:.4f}"  # a collapse shows


def find(test: TestEmbeddings, normalize: bool) -> ResultItems:
    """Retrieval among the test items, each without itself; what is no query has no neighbours."""
    some = [
        None if a is None else torch.from_numpy(a) for a in (test.query, test.gallery, test.groups)
    ]
    request = RetrievalTask(test.same, *some).arguments(torch.from_numpy(test.embeddings))
    nearest: Neighbors = retrieve(**request, depth=NEAREST, normalize=normalize)
    rows = np.arange(len(test)) if test.query is None else test.query
    items = np.arange(len(test)) if test.gallery is None else test.gallery
    places = nearest.indices.numpy()
    result = ResultItems.empty(len(test), places.shape[1], normalize)
    result.positions[rows] = np.where(places < 0, -1, items[places])
    result.similarities[rows] = nearest.similarities.double().numpy()
    result.matches[rows] = nearest.matches.numpy()
    result.num_relevant[rows] = nearest.num_relevant.numpy()
    return result


def random_draw(result: ResultItems, count: int = SHOWN) -> list[int]:
    """What to expect: any queries."""
    return _draw(np.flatnonzero(result.askable), count)


def mistakes(result: ResultItems, count: int = SHOWN) -> list[int]:
    """Queries whose first answer is wrong."""
    return _draw(np.flatnonzero(result.askable & ~result.matches[:, 0]), count)


def hardest(result: ResultItems, count: int = SHOWN) -> list[int]:
    """The smallest share of right answers first, then the highest similarity of a wrong one."""
    possible = np.clip(result.num_relevant, 1, result.matches.shape[1])
    fraction = result.matches.sum(axis=1) / possible
    wrong_first = np.where(result.matches[:, 0], -np.inf, result.similarities[:, 0])
    order = np.lexsort((-wrong_first, fraction))
    return [int(query) for query in order[result.askable[order]][:count]]


def _draw(queries: NDArray[np.int64], count: int) -> list[int]:
    order = np.random.default_rng(SEED).permutation(queries)
    return [int(query) for query in order[:count]]

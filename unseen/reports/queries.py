"""Which queries a report shows, and what they found.

Three views, because each alone misleads: a random draw (what to expect), random mistakes (what goes
wrong) and the hardest ones (how bad it gets). Hardest: fewest right of those possible, then
the surest of its wrong first answer. Queries without another picture of their class are left out.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from unseen.contracts import Neighbours
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.retrieve import retrieve
from unseen.reports.stored_run import TestEmbeddings

NEAREST = 8
SHOWN = 10
SEED = 0


@dataclass(frozen=True)
class FoundItems:
    """The nearest test items of every test item. Positions count within the test items."""

    positions: NDArray[np.int64]  # [n, K]; -1 where there are no more items
    similarities: NDArray[np.float64]  # [n, K]
    matches: NDArray[np.bool_]  # [n, K]
    num_relevant: NDArray[np.int64]  # [n]: other items of the class
    cosine: bool  # False: minus the squared distance

    @classmethod
    def empty(cls, num_items: int, depth: int, cosine: bool) -> "FoundItems":
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


def find(test: TestEmbeddings, normalise: bool) -> FoundItems:
    """Retrieval among the test items, each without itself; what is no query has no neighbours."""
    some = [
        None if a is None else torch.from_numpy(a) for a in (test.query, test.gallery, test.groups)
    ]
    asked = RetrievalTask(test.same, *some).arguments(torch.from_numpy(test.embeddings))
    nearest: Neighbours = retrieve(**asked, depth=NEAREST, normalise=normalise)
    rows = np.arange(len(test)) if test.query is None else test.query
    items = np.arange(len(test)) if test.gallery is None else test.gallery
    places = nearest.indices.numpy()
    found = FoundItems.empty(len(test), places.shape[1], normalise)
    found.positions[rows] = np.where(places < 0, -1, items[places])
    found.similarities[rows] = nearest.similarities.double().numpy()
    found.matches[rows] = nearest.matches.numpy()
    found.num_relevant[rows] = nearest.num_relevant.numpy()
    return found


def random_draw(found: FoundItems, count: int = SHOWN) -> list[int]:
    """What to expect: any queries."""
    return _draw(np.flatnonzero(found.askable), count)


def mistakes(found: FoundItems, count: int = SHOWN) -> list[int]:
    """Queries whose first answer is wrong."""
    return _draw(np.flatnonzero(found.askable & ~found.matches[:, 0]), count)


def hardest(found: FoundItems, count: int = SHOWN) -> list[int]:
    """The smallest share of right answers first, then the highest similarity of a wrong one."""
    possible = np.clip(found.num_relevant, 1, found.matches.shape[1])
    share = found.matches.sum(axis=1) / possible
    wrong_first = np.where(found.matches[:, 0], -np.inf, found.similarities[:, 0])
    order = np.lexsort((-wrong_first, share))
    return [int(query) for query in order[found.askable[order]][:count]]


def _draw(queries: NDArray[np.int64], count: int) -> list[int]:
    order = np.random.default_rng(SEED).permutation(queries)
    return [int(query) for query in order[:count]]

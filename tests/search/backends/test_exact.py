"""Exact search over parts on disk, with and without integers, beside everything in float64."""

import numpy as np
import pytest
import torch

from unseen.neighbors import certified
from unseen.neighbors.block_products import WorkCounter
from unseen.search.backends import exact
from unseen.search.backends.exact import Exact


def vectors(n: int, size: int = 24) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(n, size)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("count", [1, 40])
def test_the_nearest_rows_of_several_parts(
    integers: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "FEW", 0)
    monkeypatch.setattr(
        exact.few_queries, "MOST", 40_000
    )  # more queries go through the streaming search
    monkeypatch.setattr(certified, "_faster", lambda size, dtype: integers)
    x = vectors(1500)
    queries = torch.from_numpy(vectors(1540)[-count:])
    allowed = np.arange(1500) % 4 != 1
    allowed[600:700] = False
    backend = Exact([x[:600], x[600:700], x[700:]], normalize=True)
    sim = torch.from_numpy(x).double() @ queries.double().T
    for mask in (None, allowed):
        expected = sim.clone()
        if mask is not None:
            expected[~mask] = -2
        counter = WorkCounter()
        result = backend.search(queries, 5, mask, counter)
        assert torch.equal(result[1], expected.T.topk(5).indices)
        assert (0 < counter.fraction < 0.3) if integers else counter.fraction == 0
        torch.testing.assert_close(result[0].double(), expected.T.topk(5).values, atol=1e-6, rtol=0)

"""Exact search over parts on disk, with and without integers, beside everything in float64."""

import numpy as np
import pytest
import torch

from unseen.neighbours import certified
from unseen.neighbours.product import Tally
from unseen.search.stores import exact
from unseen.search.stores.exact import Exact


def vectors(n: int, size: int = 24) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(n, size)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("count", [1, 40])
def test_the_nearest_rows_of_several_parts(
    integers: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "FEW", 0)
    monkeypatch.setattr(exact.few, "MOST", 40_000)  # more queries go through the streaming search
    monkeypatch.setattr(certified, "_faster", lambda size, dtype: integers)
    x = vectors(1500)
    queries = torch.from_numpy(vectors(1540)[-count:])
    allowed = np.arange(1500) % 4 != 1
    allowed[600:700] = False
    store = Exact([x[:600], x[600:700], x[700:]], normalise=True)
    sim = torch.from_numpy(x).double() @ queries.double().T
    for mask in (None, allowed):
        expected = sim.clone()
        if mask is not None:
            expected[~mask] = -2
        tally = Tally()
        found = store.search(queries, 5, mask, tally)
        assert torch.equal(found[1], expected.T.topk(5).indices)
        assert (0 < tally.share < 0.3) if integers else tally.share == 0
        torch.testing.assert_close(found[0].double(), expected.T.topk(5).values, atol=1e-6, rtol=0)

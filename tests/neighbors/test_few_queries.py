"""A few queries against rows held as integers, beside everything in float64."""

import pytest
import torch
from torch import Tensor

from tests.conftest import CANNOT
from unseen.neighbors import certified
from unseen.neighbors.certified import Integers
from unseen.neighbors.few_queries import nearest_of_few

if not certified.pays(torch.ones(1, 8), measure=False):
    pytest.skip(f"{CANNOT}: no exact products of integers", allow_module_level=True)


def unit(n: int, size: int, seed: int = 0) -> Tensor:
    x = torch.randn(n, size, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x)


def listed(queries: Tensor, x: Tensor, k: int, forbidden: Tensor | None = None) -> Tensor:
    sim = queries.double() @ x.double().T
    if forbidden is not None:
        sim[:, forbidden] = -2
    return sim.topk(k).indices


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("some", [False, True])
def test_equals_everything(count: int, k: int, some: bool) -> None:
    x, queries = unit(999, 20), unit(count, 20, 1)
    x[5] = 0
    x[6] = torch.eye(20)[3]  # one large number takes the scale
    forbidden = torch.arange(999) % 3 > 0 if some else None
    read = []

    def rows(positions: Tensor) -> Tensor:
        read.append(positions)
        return x[positions]

    result = nearest_of_few(queries, k, Integers.of(x[:400], x[400:]), rows, forbidden)
    assert result is not None
    assert torch.equal(result[1], listed(queries, x, k, forbidden))
    exact = (queries[:, None].double() * x[result[1]].double()).sum(2)
    torch.testing.assert_close(result[0].double(), exact, atol=1e-6, rtol=0)
    assert len(torch.cat(read)) < 0.2 * count * 999


def test_says_when_too_much_would_be_read() -> None:
    x = torch.nn.functional.normalize(torch.ones(500, 8) + 1e-4 * unit(500, 8))
    assert nearest_of_few(x[:2], 3, Integers.of(x), x.__getitem__) is None
    assert nearest_of_few(x[:2], 400, Integers.of(x), x.__getitem__) is None


def test_fewer_allowed_than_requested() -> None:
    x = unit(300, 16)
    forbidden = torch.ones(300, dtype=torch.bool)
    forbidden[[7, 9]] = False
    result = nearest_of_few(x[:1], 4, Integers.of(x), x.__getitem__, forbidden)
    assert result is not None
    assert sorted(result[1][0].tolist()) == [-1, -1, 7, 9]

"""The nearest centre of every row, by integers and by floats, beside all distances in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conftest import CANNOT
from unseen.neighbors import center_assignment, certified
from unseen.neighbors.center_assignment import integers_of, nearest_centers

if not certified.pays(torch.ones(1, 8), measure=False):
    pytest.skip(f"{CANNOT}: no exact products of integers", allow_module_level=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts and strips, the last of each shorter."""
    monkeypatch.setattr(center_assignment, "ROWS", 100)
    monkeypatch.setattr(center_assignment, "STRIP", 40 * 33)
    monkeypatch.setattr(certified, "_faster", lambda size, dtype: True)


def random(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def unit(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(random(n, size, seed))


def copies(n: int, size: int, seed: int = 0) -> Tensor:
    return unit(n // 3 + 1, size, seed).repeat(3, 1)[:n]


def near_equals(n: int, size: int, seed: int = 0) -> Tensor:
    return unit(1, size) + 1e-7 * random(n, size, seed)


def outliers(n: int, size: int, seed: int = 0) -> Tensor:
    x = random(n, size, seed)
    x[:, 0] *= 1e3
    x[::7] *= 1e-20
    x[3::11] = 0
    return x


def far_away(n: int, size: int, seed: int = 0) -> Tensor:
    return 1e4 + random(n, size, seed)


def doubles(n: int, size: int, seed: int = 0) -> Tensor:
    return random(n, size, seed).double()


CASES = [unit, copies, near_equals, outliers, far_away, doubles]


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("integers", [True, False])
def test_equals_all_distances(make: Callable[..., Tensor], integers: bool) -> None:
    x, points = make(257, 24), torch.cat([make(20, 24, 1), make(257, 24)[5:18]])
    result = nearest_centers(x, points, integers_of(x) if integers else ())
    dist = torch.stack([(x.double() - point.double()).square().sum(1) for point in points], dim=1)
    best = dist.min(dim=1).values
    mine = dist.gather(1, result[:, None])[:, 0]
    lengths = x.double().square().sum(1) + points.double().square().sum(1).max()
    assert (mine - best <= 1e-13 * lengths).all()  # float64 rounds, too


@pytest.mark.parametrize("make", CASES)
def test_the_first_pass_changes_nothing(make: Callable[..., Tensor]) -> None:
    x, points = make(257, 24), make(33, 24, 1)
    points[20] = points[4]
    result = nearest_centers(x, points, integers_of(x))
    assert torch.equal(result, nearest_centers(x, points))
    assert not (result == 20).any()  # of equals the first


def test_few_are_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers leave a few centres of each row, not all of them."""
    seen = []

    def counted(left: Tensor, right: Tensor, row: Tensor, column: Tensor) -> Tensor:
        seen.append(len(row))
        return certified.pair_products(left, right, row, column)

    monkeypatch.setattr(center_assignment, "pair_products", counted)
    x = unit(257, 64)
    nearest_centers(x, x[:33], integers_of(x))
    assert 257 <= sum(seen) < 0.2 * 257 * 33

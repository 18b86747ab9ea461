"""Searches that refuse rows after a part of their dimensions, beside all products in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.conftest import CANNOT
from unseen.neighbors import certified, few_queries, leading_directions
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.certified import Integers
from unseen.neighbors.few_queries import nearest_of_few
from unseen.neighbors.leading_directions import LeadingDirections, _RoundedRow
from unseen.search.backends.exact import Exact

if not certified.pays(torch.ones(1, 8), measure=False):
    pytest.skip(f"{CANNOT}: no exact products of integers", allow_module_level=True)

Matrix = NDArray[np.float32]


def spectrum(rng: np.random.Generator, n: int, size: int) -> Matrix:
    """Most of each length along a few directions, as features of networks have it."""
    turned = np.linalg.qr(rng.normal(size=(size, size)))[0] if size <= 256 else np.eye(size)
    return rng.normal(size=(n, size)) / np.arange(1, size + 1) @ turned


def even(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return rng.normal(size=(n, size))


def whole_numbers(rng: np.random.Generator, n: int, size: int) -> Matrix:
    """Every sum of products is exact in floats, and many are equal."""
    return rng.integers(-3, 4, size=(n, size)) * (rng.random(size) < 0.3)


def copies(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, n, size)[rng.integers(0, max(1, n // 9), n)]


def near_ties(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, 1, size) + 10.0 ** rng.integers(-8, -1) * even(rng, n, size)


def all_lengths(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, n, size) * 10.0 ** rng.uniform(-25, 15, size=(n, 1))


def tiny(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, n, size) * 10.0 ** -float(rng.integers(18, 41))


def huge(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, n, size) * 10.0 ** rng.uniform(17, 18)


def an_outlier(rng: np.random.Generator, n: int, size: int) -> Matrix:
    x = spectrum(rng, n, size)
    x[rng.integers(n)] *= 1e6
    return x


def zeros_among(rng: np.random.Generator, n: int, size: int) -> Matrix:
    return spectrum(rng, n, size) * (rng.random((n, 1)) < 0.5)


def hidden(rng: np.random.Generator, n: int, size: int) -> Matrix:
    """What is near lies off the leading directions: rows differ where none of these looks."""
    x = np.zeros((n, size))
    x[:, : size // 4] = 3 * rng.normal(size=(1, size // 4)) + rng.normal(size=(n, size // 4))
    x[: n // 20, size // 2 :] = rng.normal(size=(1, size - size // 2))
    return x


KINDS = [
    *(spectrum, even, whole_numbers, copies, near_ties, all_lengths),
    *(tiny, huge, an_outlier, zeros_among, hidden),
]


def check(seed: int) -> bool:
    """A case of its own for each number; whether leading directions were used."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    size = int(2 ** rng.uniform(0, 12) if seed % 97 else 4096)
    n, k = int(2 ** rng.uniform(5, 10 if size < 512 else 7)), int(rng.integers(1, 13))
    x: Matrix = kind(rng, n, size).astype(np.float32)
    some = rng.integers(0, n, rng.integers(1, 4))
    asked: Matrix = x[some]
    if seed % 3 and kind is not whole_numbers:
        asked = (asked + 0.1 * np.abs(asked).max() * rng.normal(size=asked.shape)).astype("f4")
    allowed = rng.random(n) < rng.choice([1.0, 0.9, 0.02])
    rows, queries = torch.from_numpy(x), torch.from_numpy(asked)
    cut, fetch = int(rng.integers(0, n)), rows.__getitem__
    forbidden = None if allowed.all() else torch.from_numpy(~allowed)
    whole = Integers.of(rows)
    leading = LeadingDirections.of([part for part in (rows[:cut], rows[cut:]) if len(part)], whole)
    result = None
    if size > 1:
        result = nearest_of_few(queries, k, whole, fetch, forbidden, leading=leading)
    few = result is not None
    if result is None:
        result = Exact([x[:cut], x[cut:]], normalize=True).search(queries, k, allowed)
    verify(x, asked, allowed, k, *(each.numpy() for each in result), few)
    if leading is None or not few:
        return False
    return all(leading.left(query, k, fetch, forbidden) is not None for query in queries.split(1))


def verify(
    x: Matrix,
    asked: Matrix,
    allowed: NDArray[np.bool_],
    k: int,
    values: Matrix,
    items: Matrix,
    in_order: bool,
) -> None:
    """No item left out has a larger product than one listed, but for what floats round. in_order:
    of equals the first come first, which one product with everything leaves open."""
    wide, size = x.astype(np.float64), x.shape[1]
    count = min(k, int(allowed.sum()))
    assert (items[:, count:] == -1).all()
    lists = zip(asked.astype(np.float64), values[:, :count], items[:, :count], strict=True)
    for query, value, item in lists:
        exact = wide @ query
        error = size * 2.0**-23 * np.linalg.norm(wide, axis=1) * np.linalg.norm(query)
        error += size * 2.0**-125
        assert (item >= 0).all()
        assert allowed[item].all()
        assert len(set(item.tolist())) == count
        assert (np.abs(value - exact[item]) <= error[item]).all()
        assert (np.diff(value) <= 0).all()
        out = allowed.copy()
        out[item] = False
        assert not count or (exact[out] <= value[-1] + error[out]).all()
        if not count or not in_order:
            continue
        assert item.tolist() == item[np.lexsort((item, -value))].tolist()
        equal = out & (x == x[item[-1]]).all(axis=1)
        assert not equal[: item[-1]].any()  # of copies, the first
        if (x == np.round(x)).all() and np.abs(x).max() <= 3:  # every sum is exact
            order = np.lexsort((np.arange(len(x)), -exact, ~allowed))
            assert item.tolist() == order[:count].tolist()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and short rows go the way of many and long ones, however many are left of them."""
    monkeypatch.setattr(leading_directions, "TOO_MANY", 1)
    monkeypatch.setattr(few_queries, "TOO_MANY", 1)
    monkeypatch.setattr(leading_directions, "WIDTH", 12)
    monkeypatch.setattr(leading_directions, "SHORT", 16)
    monkeypatch.setattr(leading_directions, "SMALL", 0)
    monkeypatch.setattr(leading_directions, "MOST_REST", 2.0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_no_nearer_row_is_refused(part: int) -> None:
    """Some cases, and 6,000 more: ties, copies, all lengths, 1 to 4,096 numbers."""
    cases = range(150) if part == 0 else range(150, 6150)
    used = sum(check(seed) for seed in cases)
    assert used > len(cases) / 3


@pytest.mark.parametrize("size", [2, 64, 1000])
def test_what_rounding_takes_is_bounded_where_it_is_most(size: int) -> None:
    """A row along what another lost: the whole length of it is missing from their product."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.normal(size=size)
        for first in (True, False):
            lost = _lost(x)
            along = np.rint(lost / np.abs(lost).max() * 127)
            query, row = (x, along) if first else (along, x.astype("f4").astype(float))
            columns = Integers.of(torch.from_numpy(row[None].copy()).float())
            mine = _RoundedRow.of(query)
            product = int(mine.whole.int() @ columns.whole.int().T)
            assert product > mine.at_most(float(query @ row) * (1 - 1e-12), columns)


def _lost(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """What rounding to 127 steps on each side of 0 takes."""
    step = np.abs(x).max() / 127
    return x - step * np.round(x / step)


def features(n: int, size: int) -> torch.Tensor:
    x = spectrum(np.random.default_rng(0), n, size)
    return torch.nn.functional.normalize(torch.from_numpy(x).float())


def test_most_rows_are_refused_before_whole_ones_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = features(2**16, 256)
    whole = Integers.of(x)
    leading = LeadingDirections.of([x[:1000], x[1000:]], whole)
    assert leading is not None
    compared = []
    plain = torch._int_mm

    def counted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        compared.append((right.shape[1], right.shape[0]))
        return plain(left, right)

    monkeypatch.setattr(torch, "_int_mm", counted)
    counter = WorkCounter()
    result = nearest_of_few(x[:1], 10, whole, x.__getitem__, counter=counter, leading=leading)
    assert compared == [(2**16, 64), (compared[1][0], 256)]
    assert compared[1][0] < 2**16 / 50
    assert counter.pairs == 2**16
    assert counter.again < 200
    expected = nearest_of_few(x[:1], 10, whole, x.__getitem__)
    assert result is not None
    assert expected is not None
    assert all(torch.equal(*pair) for pair in zip(result, expected, strict=True))


def test_many_queries_are_compared_with_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = features(2**16, 256)
    whole = Integers.of(x)
    monkeypatch.setattr(few_queries, "_left_by_leading", None)  # it is not called
    leading = LeadingDirections.of([x], whole)
    assert leading is not None
    assert nearest_of_few(x[:9], 3, whole, x.__getitem__, leading=leading) is not None


def test_rows_without_leading_directions_have_none() -> None:
    x = torch.randn(2**14, 1024, generator=torch.Generator().manual_seed(0))
    assert LeadingDirections.of([x], Integers.of(x)) is None
    x = features(2**10, 256)  # few of them
    assert LeadingDirections.of([x], Integers.of(x)) is None
    x = features(2**17, 128)  # short ones
    assert LeadingDirections.of([x], Integers.of(x)) is None

"""Rows kept as integers alone, beside everything in float64."""

import pytest
import torch
from torch import Tensor

from tests.conftest import CANNOT
from unseen.neighbors import certified, int8_codes
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.int8_codes import Codes, nearest_in_codes

if not certified.pays(torch.ones(1, 8), measure=False):
    pytest.skip(f"{CANNOT}: no exact products of integers", allow_module_level=True)


def unit(n: int, size: int, seed: int = 0) -> Tensor:
    x = torch.randn(n, size, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x)


def listed(queries: Tensor, codes: Codes, k: int, forbidden: Tensor | None = None) -> Tensor:
    """In float64, equals by position."""
    rows = (codes.whole.double() * codes.scale.double()[:, None]).float().double()
    sim = queries.double() @ rows.T
    if forbidden is not None:
        sim[:, forbidden] = -2
    return sim.sort(dim=1, descending=True, stable=True).indices[:, :k]


def parts_of(codes: Codes, cut: int) -> list[Codes]:
    sides = (slice(None, cut), slice(cut, None))
    return [Codes(codes.whole[s], codes.scale[s], codes.rest[s]) for s in sides]


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("size", [2, 20, 37])
def test_equals_everything(count: int, k: int, some: bool, size: int) -> None:
    x, queries = unit(999, size), unit(count, size, 1)
    x[5] = 0
    x[6] = torch.eye(size)[1]
    x[7] = 1e-30 * x[8]
    held = Codes.of(x)
    forbidden = torch.arange(999) % 3 > 0 if some else None
    counter = WorkCounter()
    values, rows = nearest_in_codes(queries, k, parts_of(held, 400), forbidden, counter)
    assert counter.pairs == 999 * count
    assert counter.fraction <= 0.2  # more of a part would have been compared in floats alone
    wanted = listed(queries, held, k, forbidden)
    exact, best = (
        torch.einsum(
            "qd,qkd->qk",
            queries.double(),
            held.rows(result.reshape(-1)).double().view(count, k, size),
        )
        for result in (rows, wanted)
    )
    torch.testing.assert_close(values.double(), exact, atol=1e-6, rtol=0)
    torch.testing.assert_close(exact, best, atol=1e-7, rtol=0)  # but for near-equals the same
    if size > 2:
        assert (rows == wanted).double().mean() > 0.99


def test_the_rest_is_what_rounding_took() -> None:
    x = unit(500, 24)
    x[0], x[1] = 0, torch.eye(24)[3]
    held = Codes.of(x)
    lost = (x.double() - held.rows(slice(None)).double()).norm(dim=1)
    assert (lost <= held.rest).all()
    assert held.rest.max() < 1.2 * lost.max()
    lengths = held.rows(slice(None)).double().norm(dim=1)
    torch.testing.assert_close(lengths, x.double().norm(dim=1), atol=1e-6, rtol=0)
    queries = unit(50, 24, 3)
    wrong = (queries.double() @ (x.double() - held.rows(slice(None)).double()).T).abs()
    assert (wrong <= held.rest.double() * (1 + 1e-6)).all()


def test_rounding_again_changes_nothing() -> None:
    held = Codes.of(unit(200, 16))
    again = Codes.of(held.rows(slice(None)))
    assert torch.equal(again.whole, held.whole)
    torch.testing.assert_close(again.scale, held.scale)


def test_many_alike_and_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    same = torch.nn.functional.normalize(torch.ones(500, 8) + 1e-4 * unit(500, 8))
    held = Codes.of(same)
    values, _ = nearest_in_codes(same[:2], 3, [held])
    best = (same[:2].double() @ held.rows(slice(None)).double().T).topk(3).values
    torch.testing.assert_close(values.double(), best, atol=1e-6, rtol=0)
    x = unit(5, 8)
    values, rows = nearest_in_codes(x[:1], 8, [Codes.of(x[:3]), Codes.of(x[3:])])
    assert sorted(rows[0, :5].tolist()) == [0, 1, 2, 3, 4]
    assert rows[0, 5:].tolist() == [-1] * 3
    assert values[0, 5:].isneginf().all()
    assert nearest_in_codes(x[:1], 2, [])[1].tolist() == [[-1, -1]]
    monkeypatch.setattr(int8_codes, "ROWS", 100)  # floats, block by block
    monkeypatch.setattr(certified, "pays", lambda *_, **__: False)
    x = unit(450, 8)
    held = Codes.of(x)
    assert torch.equal(nearest_in_codes(x[:9], 4, [held])[1], listed(x[:9], held, 4))

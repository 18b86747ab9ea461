"""Integers may propose; what they drop, and what lists they leave, is held against float64."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unseen.data.glyphs import Glyphs
from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.retrieve import retrieve
from unseen.neighbors import block_products, certified, select
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.certified import Integers
from unseen.neighbors.nearest import nearest
from unseen.neighbors.space import make_space

GRID = 2.0**-20


def points(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def copies(n: int, size: int) -> Tensor:
    return points(n // 4, size).repeat(4, 1)


def near_ties(n: int, size: int) -> Tensor:
    x = points(n // 2, size).repeat(2, 1)
    return x + 1e-7 * points(n, size, 1)


def all_lengths(n: int, size: int) -> Tensor:
    return points(n, size) * torch.logspace(-30, 30, n)[:, None]


def outlier_dimensions(n: int, size: int) -> Tensor:
    x = points(n, size)
    x[:, 0] *= 1000
    x[:, 1] += 50
    return x


def zeros_among(n: int, size: int) -> Tensor:
    x = points(n, size)
    x[::3] = 0
    return x


def denormals(n: int, size: int) -> Tensor:
    x = points(n, size)
    x[::2] *= 1e-40
    x[:, ::2] *= 1e-39
    return x


def one_point(n: int, size: int) -> Tensor:
    return points(1, size).expand(n, size).clone()


def one_direction(n: int, size: int) -> Tensor:
    """Everything within the error of the integers of everything else."""
    return torch.ones(n, size) + 1e-3 * points(n, size)


def whole_numbers(n: int, size: int) -> Tensor:
    return points(n, size).round()


HARD = [
    points,
    copies,
    near_ties,
    all_lengths,
    outlier_dimensions,
    zeros_among,
    denormals,
    one_point,
    one_direction,
    whole_numbers,
]


def everything(x: Tensor, gallery: Tensor | None = None) -> Tensor:
    """Similarities on the grid, in float64, oneself at -inf."""

    def unit(t: Tensor) -> Tensor:
        t = t.double()
        t = t / t.abs().amax(dim=1, keepdim=True).clamp(min=1e-300)
        return t / t.norm(dim=1, keepdim=True).clamp(min=1e-300)

    sim = unit(x) @ unit(x if gallery is None else gallery).T
    sim = (sim / GRID).round()
    return sim.fill_diagonal_(-math.inf) if gallery is None else sim


def listed(sim: Tensor, keep: int) -> list[list[int]]:
    """By similarity, then by position."""
    order = sim.sort(dim=1, descending=True, stable=True)
    items = order.indices.masked_fill(order.values == -math.inf, -1)[:, :keep]
    return torch.nn.functional.pad(items, (0, keep - items.shape[1]), value=-1).tolist()


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("keep", [1, 9])
def test_neighbors_are_those_of_float64(
    make: object, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = make(240, 24)  # type: ignore[operator]
    expected = listed(everything(x), keep)
    assert nearest(make_space(x), keep, block=64, precision="float")[1].tolist() == expected
    assert nearest(make_space(x), keep, precision="int8")[1].tolist() == expected
    monkeypatch.setattr(block_products, "MARGIN", 0.0)  # what lies within the bound comes second
    assert nearest(make_space(x), keep, precision="int8")[1].tolist() == expected
    monkeypatch.setattr(select, "DEEP", 0)  # each block once, for its rows and its columns
    for block in (32, 96):
        assert nearest(make_space(x), keep, block=block, precision="int8")[1].tolist() == expected
    monkeypatch.setattr(select, "WIDE", 64)  # several blocks of columns for a row
    assert nearest(make_space(x), keep, memory=0, precision="int8")[1].tolist() == expected


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 90),
    size=st.integers(1, 40),
    keep=st.integers(1, 12),
    tilt=st.sampled_from([0.0, 1.0, 30.0]),
    grain=st.sampled_from([0.0, 0.5, 0.05]),
    double=st.booleans(),
    request=st.sampled_from([0, 0, 1, 20]),
)
def test_any_cloud(
    seed: int, n: int, size: int, keep: int, tilt: float, grain: float, double: bool, request: int
) -> None:
    x = points(n, size, seed) + tilt
    x = (x / grain).round() * grain if grain else x
    x = x.double() if double else x
    queries = points(request, size, seed + 1).to(x.dtype) if request else None
    space = make_space(x) if queries is None else make_space(queries, x)
    expected = everything(x) if queries is None else everything(queries, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "DEEP", 0)
        patch.setattr(select, "WIDE", 32)
        result = nearest(space, keep, block=32, precision="int8")
    assert result[1].tolist() == listed(expected, keep)


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
def test_the_bound_holds(make: object) -> None:
    """s t p.q and the float of every pair differ by no more than the bound."""
    unit = make_space(make(160, 40)).left  # type: ignore[operator]
    rows, columns = unit[:64], unit[64:]
    left, right = Integers.of(rows), Integers.of(columns)
    bound = left.bound(right, unit.dtype)
    coarse = bound.unit * (left.whole.double() @ right.whole.double().T)
    off = (coarse - (rows @ columns.T).double()).abs()
    assert (off.numpy() <= bound.error[:, None]).all()
    rest = (rows.double() - left.scale * left.whole.double()).norm(dim=1)
    assert (left.rest >= rest.numpy()).all()
    assert (left.norm >= rows.double().norm(dim=1).numpy()).all()
    assert bound.error.max() < 0.2
    bar = (rows @ columns.T).flatten()[::7][:64]
    products = left.whole.int() @ right.whole.int().T
    dropped = products <= torch.from_numpy(bound.at_most(bar))[:, None]
    assert ((rows @ columns.T)[dropped] <= bar[:, None].expand_as(dropped)[dropped]).all()


def test_few_pairs_are_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "DEEP", 0)
    counter = WorkCounter()
    nearest(make_space(points(1500, 128)), 3, block=512, precision="int8", counter=counter)
    assert counter.pairs == 3 * 500 * 500 * 2  # blocks on and above the diagonal
    assert 0 < counter.fraction < 0.1
    plain = WorkCounter()
    nearest(make_space(points(300, 16)), 3, precision="float", counter=plain)
    assert (plain.pairs, plain.fraction) == (300 * 300, 0.0)


def test_a_block_that_integers_cannot_evaluate_is_done_in_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(select, "DEEP", 0)
    counter = WorkCounter()
    nearest(
        make_space(one_direction(1200, 16)),
        3,
        block=300,
        precision="int8",
        counter=counter,
    )
    assert counter.fraction < 0.05


@pytest.mark.parametrize("case", range(4))
def test_metrics_are_the_same_with_groups_and_positions(case: int) -> None:
    x, y = HARD[case](300, 12), torch.arange(300) % 17
    groups = torch.arange(300) % 23 - 1
    own = torch.arange(100) * 3
    for query in (
        {"embeddings": x, "labels": y, "ignore_groups": groups},
        {
            "embeddings": x[own],
            "labels": y[own],
            "gallery_embeddings": x,
            "gallery_labels": y,
            "positions": own,
        },
    ):
        one, other = (
            retrieve(depth=20, block=64, precision=precision, **query)  # type: ignore[arg-type]
            for precision in ("int8", "float")
        )
        assert torch.equal(one.indices, other.indices)
        assert torch.equal(one.matches, other.matches)
        assert torch.equal(one.tied, other.tied)  # type: ignore[arg-type]
        torch.testing.assert_close(one.similarities, other.similarities, atol=2e-6, rtol=0)


def test_embeddings_of_characters_have_the_same_neighbors_ranks_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glyphs = Glyphs(size=16, max_classes=24, cache_dir=tmp_path)
    images = torch.from_numpy(glyphs.arrays().reshape(len(glyphs), -1).astype("float32"))
    x = (images / 128 - 1) @ points(256, 64)  # an untrained layer
    y = torch.from_numpy(glyphs.labels)
    expected = listed(everything(x), 20)
    assert nearest(make_space(x), 20, precision="int8")[1].tolist() == expected
    names, result = ["recall@1", "r_precision", "map_at_r", "mrr", "map"], []
    for precision in ("int8", "float"):
        monkeypatch.setattr(select, "in_integers", lambda *_, p=precision: p == "int8")
        result.append(evaluate(x, y, metrics=names, resamples=0))
    one, other = result
    assert one.values == other.values
    for name, values in one.per_query.items():
        assert torch.equal(values, other.per_query[name])
    assert one.compared_twice > 0 == other.compared_twice


def test_rows_of_one_number_are_not_multiplied_in_integers() -> None:
    """torch._int_mm gives wrong products of them, not the same each time."""
    x = zeros_among(80, 1)
    result = nearest(make_space(x), 3, precision="int8")
    assert result[1].tolist() == listed(everything(x), 3)
    assert not certified.pays(x, measure=False)


def test_infinite_numbers_are_refused() -> None:
    x = points(40, 8)
    x[3, 2] = math.inf
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        nearest(make_space(x), 3, precision="int8")


def test_a_machine_whose_integers_are_wrong_or_slow_uses_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = points(4096, 64)
    monkeypatch.setattr(certified, "_faster", lambda size, dtype: False)
    assert not certified.pays(x)
    monkeypatch.setattr(certified, "_exact", lambda: False)
    assert not certified.pays(x, measure=False)
    counter = WorkCounter()
    nearest(make_space(x[:200]), 2, precision="int8", counter=counter)
    assert counter.again == 0

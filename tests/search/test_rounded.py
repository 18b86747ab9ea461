"""An index of 8-bit integers: a quarter of the bytes, exact for what is left, errors told."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.faults.injection import flip
from tests.search.test_index import matrix, nearest_by_hand
from unseen.search import maintain
from unseen.search.index import Index
from unseen.search.index_info import describe, estimated_recall
from unseen.search.manifest import AGAIN, ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]
SIZE = 32


@pytest.fixture
def rounded(entry: ModelEntry) -> ModelEntry:
    return entry.model_copy(update={"size": SIZE})


def test_the_nearest_are_those_of_what_is_left(
    tmp_path: Path, rounded: ModelEntry, rows: Rows
) -> None:
    some = rows(3000, size=SIZE)
    with Writer.create(tmp_path / "i", rounded, precision="int8") as writer:
        for start in range(0, 3000, 300):  # merged on the way
            writer.add(some[start : start + 300])
        writer.remove(range(5, 3000, 7))
    index = Index.open(tmp_path / "i")
    assert not verify(tmp_path / "i")
    assert {file.name for file in tmp_path.rglob("*.npy")} >= {"codes.npy", "roundings.npy"}
    assert not list(tmp_path.rglob("vectors.npy"))
    kept, given = index.vectors(), matrix(some)[index.ids - 1]
    rest = np.concatenate([s.rest[s.alive] for s in index.segments])
    assert (np.linalg.norm(kept.astype(np.float64) - given, axis=1) <= rest).all()
    assert rest.max() < 0.02
    queries = matrix(rows(20, first=10**6, size=SIZE))
    result = index.search(queries, k=6)
    assert 0 < result.compared_twice < 0.2
    assert result.ids.tolist() == nearest_by_hand(queries, kept, index.ids.tolist(), 6, True)
    true = np.einsum("qd,qkd->qk", queries.astype(np.float64), matrix(some)[result.ids - 1])
    assert (np.abs(true - result.similarities) <= rest.max() + 1e-6).all()
    within = index.search(queries, k=2, filter=[7, 9, 10]).ids
    assert set(within.ravel().tolist()) <= {7, 9, 10}


def test_reported_in_numbers(tmp_path: Path, rounded: ModelEntry, rows: Rows) -> None:
    """Bytes, the bound, and an estimate of the recall that agrees with the one of the originals."""
    some = rows(2000, size=SIZE)
    for precision in ("float32", "int8"):
        with Writer.create(tmp_path / precision, rounded, precision=precision) as writer:  # type: ignore[arg-type]
            writer.add(some)
    floats, index = (Index.open(tmp_path / name) for name in ("float32", "int8"))
    known, whole = describe(index), describe(floats)
    assert (known.precision, known.images, known.labels, known.segments) == ("int8", 2000, 3, 1)
    assert known.num_bytes["vectors"] == 2000 * (SIZE + 8) + 2 * 128
    assert whole.num_bytes["vectors"] == 2000 * 4 * SIZE + 128
    assert (whole.recall, whole.largest_error) == (None, 0)
    request = np.arange(1, 2000, 8)
    lists = [i.search(i.vectors(request), 11).ids[:, 1:] for i in (floats, index)]
    truly = (lists[0][:, :, None] == lists[1][:, None]).any(axis=2).mean()
    assert known.recall is not None
    assert 0.9 < known.recall < 1
    assert known.recall == pytest.approx(truly, abs=0.01)
    assert known.recall == estimated_recall(index)
    worst = np.linalg.norm(index.vectors().astype(np.float64) - floats.vectors(), axis=1).max()
    assert worst <= known.largest_error < 1.1 * worst
    assert known.mean_error < known.largest_error


def test_a_row_put_in_again_keeps_its_error(
    tmp_path: Path, rounded: ModelEntry, rows: Rows
) -> None:
    some = rows(40, size=SIZE)
    with Writer.create(tmp_path / "i", rounded, precision="int8") as writer:
        writer.add(some)
        before = writer.index()
        assert maintain.relabel(writer, [3, 4], "new") == 2
    index = Index.open(tmp_path / "i")
    assert [index.image(id).label for id in (3, 4)] == ["new", "new"]
    np.testing.assert_array_equal(index.vectors([3, 4]), before.vectors([3, 4]))
    assert index.row(3).rest >= before.row(3).rest > 0
    assert index.row(3).rest < 1.01 * before.row(3).rest


@pytest.mark.parametrize("name", ["codes.npy", "roundings.npy"])
def test_damage_is_noticed(tmp_path: Path, rounded: ModelEntry, rows: Rows, name: str) -> None:
    with Writer.create(tmp_path / "i", rounded, precision="int8") as writer:
        writer.add(rows(30, size=SIZE))
    file = next(tmp_path.rglob(name))
    flip(file, file.stat().st_size - 5)
    assert verify(tmp_path / "i") == [f"{file} is damaged: its checksum does not match; {AGAIN}"]
    with pytest.raises(ValueError, match=name):
        Index.open(tmp_path / "i").search(np.ones((1, SIZE), dtype=np.float32))


def test_raw_vectors_are_refused(tmp_path: Path, entry: ModelEntry) -> None:
    raw = entry.model_copy(update={"normalize": False})
    with (
        pytest.raises(ValueError, match="unit vectors"),
        Writer.create(tmp_path / "i", raw, precision="int8"),
    ):
        pass
    assert not (tmp_path / "i").exists()

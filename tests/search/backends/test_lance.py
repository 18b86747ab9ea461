"""LanceDB, for real: the same neighbours as exact search, through changes, filters and damage."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.search import index as indexes
from unseen.search.backends import lance, milvus
from unseen.search.backends.by_name import external_backend, parse
from unseen.search.backends.exact import Exact
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _also_small_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "FEW", 0)


def test_stores_are_named() -> None:
    assert parse("lance:s3://bucket/birds", Path("i")).uri == "s3://bucket/birds"
    assert parse("lance:", Path("i")).uri.endswith("/i.lance")
    assert Path(parse("lance:near", Path("i")).uri).is_absolute()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("backend", ["lance:", "milvus:"])
def test_ten_thousand_images_have_the_neighbors_of_exact_search(
    tmp_path: Path,
    entry: ModelEntry,
    rows: Rows,
    normalize: bool,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = rows(10_000)
    model = entry.model_copy(update={"normalize": normalize})
    for name in ("asked", "exact"):
        with Writer.create(tmp_path / name, model) as writer:
            if name == "asked":
                writer.use_backend(parse(backend, tmp_path / name))
            for start in range(0, 10_000, 2_500):
                writer.add(some[start : start + 2_500])
            writer.refresh_backend()
            writer.remove(range(5, 10_000, 7))
            writer.add([NewImage(some[2].metadata, some[3].vector, b"", id=2)])
            writer.refresh_backend()
    request, exact = (Index.open(tmp_path / name) for name in ("asked", "exact"))
    assert verify(tmp_path / "asked") == []
    queries = np.stack([image.vector for image in rows(60, first=50_000)])
    some_ids = [id for id in exact.ids.tolist() if id % 4]
    by_id, by_label = {"filter": some_ids}, {"label": "label 2"}
    choices: list[dict[str, Any]] = [{}, by_id, by_label, by_id | by_label]
    expected = [exact.search(queries, k=10, **choice) for choice in choices]
    monkeypatch.setattr(Exact, "search", lambda *_: pytest.fail("the store was not asked"))
    for choice, right in zip(choices, expected, strict=True):
        result = request.search(queries, k=10, **choice)
        assert result.ids.tolist() == right.ids.tolist(), choice
        np.testing.assert_allclose(result.similarities, right.similarities, atol=1e-5)


def test_packed_vectors_reach_the_recall_that_is_message(
    tmp_path: Path, entry: ModelEntry, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lance, "EXACT_UP_TO", 1_000)
    with Writer.create(tmp_path / "i", entry.model_copy(update={"size": 32})) as writer:
        writer.use_backend(parse("lance:", tmp_path / "i"))
        writer.add(rows(4_000, size=32))
        writer.refresh_backend()
        backend = writer.manifest.external
        assert backend is not None
        assert backend.effort >= 16
        assert backend.recall >= 0.98
        assert backend.num_queries == 256
        writer.add(rows(10, first=9_000, size=32))
        writer.refresh_backend()
    new = rows(1, first=9_000, size=32)[0]
    assert Index.open(tmp_path / "i").search(new.vector, k=1).ids.tolist() == [[4_001]]


def test_without_its_table_searches_are_exact(
    tmp_path: Path, entry: ModelEntry, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.use_backend(parse("lance:", tmp_path / "i"))
        writer.add(rows(100))
        writer.refresh_backend()
        known = writer.manifest.external
        assert known is not None
        external_backend(known, entry).forget([3])
        assert "LanceDB at" in verify(tmp_path / "i")[0]
        assert "lacks 1 of 100" in verify(tmp_path / "i")[0]
        writer.refresh_backend()
        assert verify(tmp_path / "i") == []
    shutil.rmtree(tmp_path / "i.lance")
    query = rows(1, first=3_000)[0].vector
    assert (Index.open(tmp_path / "i").search(query, k=5).ids > 0).all()
    assert "searching exactly" in caplog.text


def test_a_graph_of_milvus_reaches_the_recall_that_is_message(
    tmp_path: Path, entry: ModelEntry, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus, "EXACT_UP_TO", 1_000)
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.use_backend(parse("milvus:", tmp_path / "i"))
        writer.add(rows(2_000))
        writer.refresh_backend()
        backend = writer.manifest.external
        assert backend is not None
        assert backend.recall >= 0.98

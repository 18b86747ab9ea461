"""milvus-lite, for real: the same neighbours as exact search, through changes and crashes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.search.backends.by_name import parse
from unseen.search.backends.milvus import Milvus
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]


@pytest.mark.parametrize("normalize", [True, False])
def test_the_same_neighbors_as_exact_search(
    tmp_path: Path, entry: ModelEntry, rows: Rows, normalize: bool
) -> None:
    path, some = tmp_path / "i", rows(700)
    model = entry.model_copy(update={"normalize": normalize})
    with Writer.create(path, model) as writer, Writer.create(tmp_path / "exact", model) as exact:
        writer.use_backend(parse("milvus:", path))
        for part in (slice(0, 400), slice(400, 600)):
            writer.add(some[part])
            exact.add(some[part])
            writer.refresh_backend()
        for either in (writer, exact):
            either.remove([5, 6, 599])
            replaced = rows(1, first=900)[0]
            either.add([NewImage(replaced.metadata, replaced.vector, replaced.thumbnail, id=9)])
        writer.refresh_backend()
        backend = writer.manifest.external
        assert backend is not None
        assert len(Milvus(backend, 8, normalize).serials()) == 597
        assert verify(path) == []
        for either in (writer, exact):
            either.add(some[600:])  # not brought to Milvus: searched beside it
            either.remove([20])
    queries = np.stack([image.vector for image in rows(40, first=5000)])
    expected = Index.open(tmp_path / "exact").search(queries, k=10)
    opened = Index.open(path)
    result = opened.search(queries, k=10)
    assert result.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(result.similarities, expected.similarities, atol=1e-5)
    some_ids = [id for id in opened.ids.tolist() if id % 4]
    exact = Index.open(tmp_path / "exact")
    by_id, by_label = {"filter": some_ids}, {"where": "label = 'label 1'"}
    for request in (by_id, by_label, by_id | by_label):
        expected = exact.search(queries, k=10, **request)
        assert opened.search(queries, k=10, **request).ids.tolist() == expected.ids.tolist()

    fresh = backend.model_copy(update={"last_serial": 0})  # as after a rebuild
    assert Milvus(fresh, 8, normalize).difference(opened) == ""
    Milvus(backend, 8, normalize).forget([3])
    assert "lacks 1 of" in verify(path)[0]
    assert Index.open(path).search(some[2].vector, k=1).ids.tolist() == [[3]]  # exactly
    with Writer.open(path) as writer:
        writer.refresh_backend()
    assert verify(path) == []


def test_stores_are_named_milvus() -> None:
    assert parse("milvus:http://host:19530", Path("i")).uri == "http://host:19530"
    assert parse("milvus:", Path("i")).uri.endswith("i.milvus.db")
    with pytest.raises(ValueError, match="milvus:URI or pgvector:URI"):
        parse("redis:", Path("i"))

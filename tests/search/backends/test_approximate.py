"""faiss finds nearly what exact search finds, never what is removed, and always what is new."""

from collections.abc import Callable
from pathlib import Path

import faiss.contrib.torch_utils  # noqa: F401  (as pytorch-metric-learning does: it changes `search`)
import numpy as np
import pytest

from unseen.search.backends import approximate
from unseen.search.index import Index
from unseen.search.manifest import APPROXIMATE, DERIVED, ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kind", ["hnsw", "ivf_pq"])
def test_recall_and_changes(
    tmp_path: Path,
    entry: ModelEntry,
    rows: Rows,
    kind: approximate.Kind,
    normalize: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approximate, "choose", lambda count, size: (kind, "a test says so"))
    path, some = tmp_path / "i", rows(1500)
    with Writer.create(path, entry.model_copy(update={"normalize": normalize})) as writer:
        writer.add(some[:1000])
        writer.refresh_backend(approximate_above=2000)
        assert writer.manifest.approximate is None
        writer.refresh_backend(approximate_above=500)
        made = writer.manifest.approximate
        assert made is not None
        assert made.kind == kind
        assert made.recall >= 0.97
        writer.add(some[1000:1100])  # after the faiss index: still found
        writer.remove([1, 2, 1001])
        writer.refresh_backend(approximate_above=500)
        assert writer.manifest.approximate == made  # too few changes for a new one
    index = Index.open(path)
    queries = np.stack([image.vector for image in some[:1100]])
    result = index.search(queries, k=5)
    alive = np.array([i for i in range(1, 1101) if i not in (1, 2, 1001)])
    assert (result.ids[alive - 1, 0] == alive).mean() > 0.97
    assert not np.isin(result.ids, [1, 2, 1001]).any()
    even = alive[alive % 2 == 0]
    filtered = index.search(queries[:50], k=5, filter=even)
    assert (filtered.ids % 2 == 0).all()
    assert verify(path) == []
    with Writer.open(path) as writer:
        writer.add(some[1100:])
        writer.refresh_backend(approximate_above=500)
        assert writer.manifest.approximate != made
        assert len(list((path / APPROXIMATE).iterdir())) == 1
    file = next(path.rglob("faiss.index"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert f"faiss.index is damaged: its checksum does not match; {DERIVED}" in verify(path)[0]
    with Writer.open(path) as writer:
        writer.refresh_backend(approximate_above=500)  # as `unseen index update` does
    assert verify(path) == []
    file = next(path.rglob("faiss.index"))
    index = Index.open(path)
    index.search(queries[:1])
    with file.open("r+b") as opened:
        opened.truncate(10)
    with pytest.raises(ValueError, match=r"faiss\.index is damaged"):
        index.search(queries[:1])


def test_the_choice_is_explained() -> None:
    kind, why = approximate.choose(300_000, 128)
    assert kind == "hnsw"
    assert "300,000 vectors of 128 numbers" in why
    kind, why = approximate.choose(50_000_000, 128)
    assert kind == "ivf_pq"
    assert "packed" in why

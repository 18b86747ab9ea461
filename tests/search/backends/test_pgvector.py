"""PostgreSQL, for real: the same neighbours as exact search, through changes, crashes and loss."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.search.backends import milvus, pgvector
from unseen.search.backends.by_name import external_backend, parse
from unseen.search.backends.exact import Exact
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]


def test_stores_are_named() -> None:
    uri = "postgresql://me@host/images"
    assert parse(f"pgvector:{uri}", Path("i")).uri == uri
    for wrong in ("pgvector:", "pgvector"):
        with pytest.raises(ValueError, match="pgvector:postgresql://user@host/images"):
            parse(wrong, Path("i"))
    for secret in ("postgresql://me:word@host/images", "host=a password=word"):
        with pytest.raises(ValueError, match="PGPASSWORD"):
            parse(f"pgvector:{secret}", Path("i"))


FEW = [("pgvector:", True, 1_000), ("milvus:", False, 1_000)]
MANY = [(backend, way, 10_000) for backend in ("pgvector:", "milvus:") for way in (True, False)]


@pytest.mark.parametrize(
    ("backend", "normalize", "count"),
    [*FEW, *(pytest.param(*each, marks=pytest.mark.slow) for each in MANY)],
)
def test_every_backend_has_the_neighbors_of_exact_search(
    tmp_path: Path,
    entry: ModelEntry,
    rows: Rows,
    backend: str,
    normalize: bool,
    count: int,
    postgresql: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend += postgresql if backend == "pgvector:" else ""
    some = rows(count)
    model = entry.model_copy(update={"normalize": normalize})
    for name in ("asked", "exact"):
        with Writer.create(tmp_path / name, model) as writer:
            if name == "asked":
                writer.use_backend(parse(backend, tmp_path / name))
            for start in range(0, count, count // 4):
                writer.add(some[start : start + count // 4])
            writer.refresh_backend()
            writer.remove(range(5, count, 7))
            writer.add([NewImage(some[2].metadata, some[3].vector, b"", id=2)])
            writer.refresh_backend()
    request, exact = (Index.open(tmp_path / name) for name in ("asked", "exact"))
    assert verify(tmp_path / "asked") == []
    queries = np.stack([image.vector for image in rows(60, first=50_000)])
    expected = exact.search(queries, k=10)
    monkeypatch.setattr(Exact, "search", lambda *_: pytest.fail("the store was not asked"))
    result = request.search(queries, k=10)
    assert result.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(result.similarities, expected.similarities, atol=1e-5)
    monkeypatch.undo()
    for where in ("label = 'label 2'", "file_name < 'p2'", "label is null and file_name > 'p9'"):
        right = exact.search(queries, k=10, where=where)
        assert request.search(queries, k=10, where=where).ids.tolist() == right.ids.tolist()


def test_changes_reach_the_table(
    tmp_path: Path, entry: ModelEntry, rows: Rows, postgresql: str, caplog: pytest.LogCaptureFixture
) -> None:
    some, path = rows(300), tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.use_backend(parse(f"pgvector:{postgresql}", path))
        writer.add(some[:200])
        writer.refresh_backend()
        writer.remove([5])
        writer.add([NewImage(some[2].metadata, some[250].vector, b"", id=2)])
        writer.refresh_backend()
        known = writer.manifest.external
        assert known is not None
        table = external_backend(known, entry)
        assert len(table.serials()) == 199
        assert verify(path) == []
        writer.add(some[200:210])  # searched beside the table
    assert Index.open(path).search(some[205].vector, k=1).ids.tolist() == [[206]]
    assert Index.open(path).search(some[250].vector, k=1).ids.tolist() == [[2]]
    table.forget([3])
    assert "lacks 1 of 199" in verify(path)[0]
    with Writer.open(path) as writer:
        writer.refresh_backend()
    assert verify(path) == []
    table.drop()
    assert (Index.open(path).search(some[7].vector, k=5).ids > 0).all()
    assert "searching exactly" in caplog.text
    assert "\n" not in caplog.messages[-1]


DIE = """
import os, sys
from unseen.search.backends.pgvector import Pgvector
from pathlib import Path
from unseen.search.writer import Writer
insert = Pgvector.insert
def dies(self, serials, vectors):
    insert(self, serials[:40], vectors[:40])
    os.kill(os.getpid(), 9)
Pgvector.insert = dies
with Writer.open(Path(sys.argv[1])) as writer:
    writer.refresh_backend()
"""


def test_a_client_that_dies_while_it_brings_rows_leaves_right_answers(
    tmp_path: Path, entry: ModelEntry, rows: Rows, postgresql: str
) -> None:
    some, path = rows(300), tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.use_backend(parse(f"pgvector:{postgresql}", path))
        writer.add(some[:100])
        writer.refresh_backend()
        writer.add(some[100:])
    assert subprocess.run([sys.executable, "-c", DIE, str(path)], check=False).returncode == -9
    queries = np.stack([image.vector for image in some])
    assert Index.open(path).search(queries, k=1).ids[:, 0].tolist() == list(range(1, 301))
    with Writer.open(path) as writer:
        writer.refresh_backend()
        known = writer.manifest.external
    assert known is not None
    assert external_backend(known, entry).serials() == set(range(1, 301))
    assert verify(path) == []


@pytest.mark.parametrize("normalize", [True, False])
def test_a_graph_reaches_the_stated_recall(
    tmp_path: Path,
    entry: ModelEntry,
    rows: Rows,
    postgresql: str,
    normalize: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pgvector, "EXACT_UP_TO", 1_000)
    model = entry.model_copy(update={"normalize": normalize})
    with Writer.create(tmp_path / "i", model) as writer:
        writer.use_backend(parse(f"pgvector:{postgresql}", tmp_path / "i"))
        writer.add(rows(1_500))
        writer.refresh_backend()
        backend = writer.manifest.external
        assert backend is not None
        assert backend.effort >= 16
        assert backend.recall >= 0.98
    new = rows(1)[0]
    assert Index.open(tmp_path / "i").search(new.vector, k=1).ids.tolist() == [[1]]


def test_a_server_that_does_not_answer_is_one_line(
    tmp_path: Path, entry: ModelEntry, rows: Rows
) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        with pytest.raises(ValueError, match=r"PostgreSQL at .* failed") as raised:
            writer.use_backend(parse("pgvector:postgresql://me@127.0.0.1:1/none", tmp_path / "i"))
        assert "\n" not in str(raised.value)
        assert writer.manifest.external is None


@pytest.mark.slow
def test_a_graph_of_milvus_reaches_the_stated_recall(
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

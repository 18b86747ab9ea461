"""Every store is opened by another process than the one that wrote it, and by two at once."""

import fcntl
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.cli import index as commands
from unseen.search import manifest as manifests
from unseen.search.backends import external
from unseen.search.backends.by_name import parse
from unseen.search.backends.exact import Exact
from unseen.search.backends.milvus import Milvus
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]

WRITE = """
import sys
from pathlib import Path
import numpy as np
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.backends.by_name import parse
from unseen.search.writer import Writer

root = Path(sys.argv[1])
vectors = np.load(root / "vectors.npy")
rows = [NewImage(Metadata(f"/p{i}.jpg", None, 10, i), v, b"t") for i, v in enumerate(vectors)]
for backend in ("exact", "faiss", "milvus"):
    model = ModelEntry(run="/nowhere", fingerprint="f" * 32, size=8, normalize=True)
    with Writer.create(root / backend, model) as writer:
        if backend == "milvus":
            writer.use_backend(parse("milvus:", root / backend))
        writer.add(rows)
        writer.refresh_backend(approximate_above=0 if backend == "faiss" else 10**6)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> Path:
    """One index with each store, of 300 rows, made by a process that has ended."""
    root = tmp_path_factory.mktemp("written")
    np.save(root / "vectors.npy", np.stack([row.vector for row in rows(300)]))
    subprocess.run([sys.executable, "-c", WRITE, str(root)], check=True, timeout=300)
    return root


@pytest.fixture
def copied(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the indexes, which this process has not opened yet."""
    shutil.copytree(written, tmp_path / "copied")
    path = tmp_path / "copied" / "milvus"
    known = manifests.read(path)
    assert known.external is not None
    entry = known.external.model_copy(update={"uri": f"{path}.milvus.db"})
    manifests.write(path, known.model_copy(update={"external": entry}))
    return tmp_path / "copied"


@pytest.fixture
def collection(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index in Milvus."""
    monkeypatch.setattr(external, "RETRY_SECONDS", 0.0)
    return copied / "milvus"


@pytest.fixture
def queries(rows: Rows) -> np.ndarray:
    return np.stack([row.vector for row in rows(5, first=9000)])


@contextmanager
def used_elsewhere(index: Path) -> Iterator[None]:
    """As while another process has the milvus-lite file open."""
    with Path(f"{index}.milvus.db/LOCK").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.mark.parametrize("backend", ["exact", "faiss", "milvus"])
def test_another_process_searches_checks_and_changes(
    copied: Path,
    written: Path,
    rows: Rows,
    queries: np.ndarray,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = copied / backend
    expected = Index.open(written / "exact").search(queries, k=10)
    with monkeypatch.context() as alone:
        if backend != "exact":
            alone.setattr(Exact, "search", lambda *request: pytest.fail("the store was not asked"))
        assert Index.open(path).search(queries, k=10).ids.tolist() == expected.ids.tolist()
    assert verify(path) == []
    new = rows(1, first=9001)[0]
    with Writer.open(path) as writer:
        (id,) = writer.add([new])
        writer.refresh_backend(approximate_above=0 if backend == "faiss" else 10**6)
        assert Index.open(path).search(new.vector, k=1).ids.tolist() == [[id]]
        assert writer.remove([id]) == 1
        writer.refresh_backend(approximate_above=0 if backend == "faiss" else 10**6)
    assert Index.open(path).search(queries, k=10).ids.tolist() == expected.ids.tolist()
    assert verify(path) == []


def test_a_file_in_use_is_searched_exactly_and_changed_later(
    collection: Path,
    written: Path,
    queries: np.ndarray,
    rows: Rows,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with used_elsewhere(collection), caplog.at_level(logging.WARNING):
        result = Index.open(collection).search(queries, k=10)
        assert "in use by another process: searching exactly" in caplog.text
        assert "not compared" in verify(collection)[0]
        commands.remove(collection, [str(result.ids[0, 0])])
        assert "removed 1 images, 299 stay" in capsys.readouterr().out
        assert "Milvus follows" in caplog.text
        with Writer.open(collection) as writer:
            (id,) = writer.add(rows(1, first=9000))
            writer.refresh_backend()
        assert Index.open(collection).search(queries[:1], k=1).ids.tolist() == [[id]]
    expected = Index.open(written / "exact").search(queries, k=10)
    assert result.ids.tolist() == expected.ids.tolist()
    with Writer.open(collection) as writer:
        writer.refresh_backend()
        entry = writer.manifest.external
    assert entry is not None
    assert len(Milvus(entry, 8, True).serials()) == 300
    assert verify(collection) == []


def test_other_vectors_in_milvus_answer_nobody(
    collection: Path,
    written: Path,
    queries: np.ndarray,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if a bit of its own files had flipped."""
    nearest = Milvus.nearest

    def damaged(self: Milvus, *request: Any) -> list[Any]:
        result = nearest(self, *request)
        result[0][1][0] += 0.01
        return result

    monkeypatch.setattr(Milvus, "nearest", damaged)
    with caplog.at_level(logging.WARNING):
        result = Index.open(collection).search(queries, k=10)
    assert "holds other vectors" in caplog.text
    exact = Index.open(written / "exact").search(queries, k=10)
    assert result.ids.tolist() == exact.ids.tolist()
    assert result.similarities.tolist() == exact.similarities.tolist()


def test_a_build_on_a_file_in_use_is_refused_at_once(
    collection: Path, tmp_path: Path, entry: ModelEntry
) -> None:
    with used_elsewhere(collection), Writer.create(tmp_path / "new", entry) as writer:
        with pytest.raises(ValueError, match="in use by another process"):
            writer.use_backend(parse(f"milvus:{collection}.milvus.db", tmp_path / "new"))
        assert writer.manifest.external is None


def test_what_was_brought_and_not_yet_recorded_is_found_once(collection: Path, rows: Rows) -> None:
    """A writer died, or is, between the two."""
    new = rows(20, first=9100)
    with Writer.open(collection) as writer:
        ids = writer.add(new)
        backend = writer.manifest.external
        assert backend is not None
        Milvus(backend, 8, True).bring(writer.index())
    result = Index.open(collection).search(new[0].vector, k=320).ids[0].tolist()
    assert len(set(result)) == 320
    assert set(ids) <= set(result)


def test_removed_rows_that_milvus_still_holds_leave_nobody_out(
    collection: Path, queries: np.ndarray
) -> None:
    """They may be merged away in the folder already."""
    near = Index.open(collection).search(queries[:1], k=120).ids[0]
    with Writer.open(collection) as writer:
        writer.remove(near[:100].tolist())
    result = Index.open(collection).search(queries[:1], k=20).ids[0]
    assert result.tolist() == near[100:].tolist()


def test_a_rebuilt_index_has_a_collection_of_its_own(
    collection: Path, tmp_path: Path, entry: ModelEntry, rows: Rows, queries: np.ndarray
) -> None:
    """Serial numbers begin anew: an old vector under a new one's number would be found."""
    with Writer.create(tmp_path / "aside", entry) as aside:
        aside.add(rows(300, first=400))
        aside.index()
    with used_elsewhere(collection), Writer.open(collection) as writer:
        writer.take(tmp_path / "aside", vanished={})
        writer.refresh_backend()
    with Writer.open(collection) as writer:
        writer.refresh_backend()
    assert verify(collection) == []


def test_a_collection_that_is_gone_is_not_made_by_a_reader(
    collection: Path, written: Path, queries: np.ndarray
) -> None:
    shutil.rmtree(f"{collection}.milvus.db")
    result = Index.open(collection).search(queries, k=10)
    assert result.ids.tolist() == Index.open(written / "exact").search(queries, k=10).ids.tolist()
    assert "lacks 300 of 300" in verify(collection)[0]
    assert not Path(f"{collection}.milvus.db").exists()

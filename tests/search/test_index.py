"""What is written is found again, exactly; changes are whole; two writers are refused."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.faults.injection import flip
from unseen.search import writer as writers
from unseen.search.index import Index
from unseen.search.manifest import DamagedError, ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import leftovers, verify
from unseen.search.writer import Writer

Rows = Callable[..., list[NewImage]]


def matrix(images: list[NewImage]) -> NDArray[np.float32]:
    return np.stack([image.vector for image in images])


def nearest_by_hand(
    queries: NDArray[np.float32], vectors: NDArray[np.float32], ids: list[int], k: int, cosine: bool
) -> list[list[int]]:
    """A loop over queries in float64."""
    lists = []
    for query in queries.astype(np.float64):
        if cosine:
            sim = vectors.astype(np.float64) @ query / np.linalg.norm(query)
        else:
            sim = -((vectors.astype(np.float64) - query) ** 2).sum(axis=1)
        lists.append([ids[i] for i in np.argsort(-sim)[:k]])
    return lists


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("count", "num_queries"), [(50, 3), (3000, 2), (3000, 1500)])
def test_the_nearest_are_those_of_a_loop(
    tmp_path: Path, entry: ModelEntry, rows: Rows, normalize: bool, count: int, num_queries: int
) -> None:
    some = rows(count)
    with Writer.create(tmp_path / "i", entry.model_copy(update={"normalize": normalize})) as writer:
        for start in range(0, count, 1400):
            writer.add(some[start : start + 1400])
        gone = set(range(5, count, 7))
        writer.remove(gone)
    index = Index.open(tmp_path / "i")
    queries = matrix(rows(num_queries, first=10**6)) * 3
    result = index.search(queries, k=6)
    ids = [i for i in range(1, count + 1) if i not in gone]
    vectors = matrix(some)[np.array(ids) - 1]
    some_queries = slice(None, None, max(1, num_queries // 40))
    expected = nearest_by_hand(queries[some_queries], vectors, ids, 6, normalize)
    assert result.ids[some_queries].tolist() == expected
    assert (np.diff(result.similarities, axis=1) <= 0).all()

    odd = [i for i in ids if i % 2]
    result = index.search(queries[:2], k=6, filter=odd)
    expected = nearest_by_hand(queries[:2], matrix(some)[np.array(odd) - 1], odd, 6, normalize)
    assert result.ids.tolist() == expected


def test_fewer_images_than_requested(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        assert (
            Index.open(tmp_path / "i").search(matrix(rows(2)), k=3).ids.tolist() == [[-1] * 3] * 2
        )
        writer.add(rows(2))
    result = Index.open(tmp_path / "i").search(matrix(rows(2)), k=3)
    assert result.ids.tolist() == [[1, 2, -1], [2, 1, -1]]
    assert result.similarities[0, 0] == pytest.approx(1)


def test_metadata_and_thumbnails_follow_their_image(
    tmp_path: Path, entry: ModelEntry, rows: Rows
) -> None:
    path = tmp_path / "i"
    some = rows(40)
    with Writer.create(path, entry) as writer:
        for start in range(40):  # many small segments: they are merged on the way
            writer.add(some[start : start + 1])
        assert len(writer.manifest.segments) < 20
        writer.remove([3, 4, 5])
    index = Index.open(path)
    assert len(index) == 37
    assert index.ids.tolist() == [i for i in range(1, 41) if i not in (3, 4, 5)]
    for id in index.ids.tolist():
        image = index.image(id)
        assert (image.id, image.path, image.label) == (
            id,
            some[id - 1].metadata.path,
            some[id - 1].metadata.label,
        )
        assert index.thumbnail(id) == some[id - 1].thumbnail
        assert index.vectors([id])[0].tolist() == some[id - 1].vector.tolist()
    assert dict(index.every())[7].path == "/p6.jpg"
    assert index.where("label = 'label 1'").tolist() == [
        i for i in index.ids.tolist() if some[i - 1].metadata.label == "label 1"
    ]
    assert sum(index.labels.values()) == sum(i % 2 == 0 for i in index.ids.tolist())
    with pytest.raises(ValueError, match="no image with the id 3"):
        index.image(3)
    assert verify(path) == []


def test_a_changed_image_keeps_its_id(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    path = tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.add(rows(10))
        new = rows(1, first=500)[0]
        assert writer.add([NewImage(new.metadata, new.vector, new.thumbnail, id=4)]) == [4]
        assert writer.add(rows(1, first=600)) == [11]
    index = Index.open(path)
    assert len(index) == 11
    assert index.image(4).path == "/p500.jpg"
    assert index.search(new.vector, k=1).ids.tolist() == [[4]]
    assert verify(path) == []


def test_a_reader_keeps_what_it_opened(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    path = tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.add(rows(30))
        before = Index.open(path)
        assert not before.newer()
        writer.remove(range(1, 26))  # so many that the segment is written anew
        assert before.newer()
        assert len(before) == 30
        assert before.thumbnail(3) == b"thumbnail 2"
        assert before.search(before.vectors([3]), k=1).ids.tolist() == [[3]]
        assert len(Index.open(path)) == 5
    assert leftovers(path) == []


def test_two_writers_are_refused(tmp_path: Path, entry: ModelEntry) -> None:
    with Writer.create(tmp_path / "i", entry):
        with (
            pytest.raises(ValueError, match="is being written to by process"),
            Writer.open(tmp_path / "i"),
        ):
            pass
        Index.open(tmp_path / "i")  # readers are welcome
    with Writer.open(tmp_path / "i"):
        pass


def test_folders_that_are_no_index_are_refused(tmp_path: Path, entry: ModelEntry) -> None:
    with pytest.raises(ValueError, match="is no index"):
        Index.open(tmp_path)
    for name in ("config.toml", "manifest.json"):
        (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
    with pytest.raises(ValueError, match="is a run, no index: `unseen index build"):
        Index.open(tmp_path / "run")
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(ValueError, match="not empty and no index"), Writer.create(tmp_path, entry):
        pass


def test_a_flipped_byte_anywhere_is_found(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    path = tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.add(rows(6))
        writer.add(rows(3, first=50))
        writer.remove([2])
    assert verify(path) == []
    files = [file for file in path.rglob("*") if file.is_file() and file.stat().st_size]
    assert {file.name for file in files} >= {"manifest.json", "vectors.npy", "rows.npy"}
    for file in files:
        content = file.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 60)):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            file.write_bytes(flipped)
            assert verify(path), f"byte {place} of {file.name}"
        file.write_bytes(content)
    assert verify(path) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_queries_are_refused(
    tmp_path: Path, entry: ModelEntry, rows: Rows, value: float
) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(3))
    index = Index.open(tmp_path / "i")
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        index.search(np.full((1, 8), value, dtype=np.float32))
    with pytest.raises(ValueError, match="8 numbers, got 7"):
        index.search(np.zeros((1, 7), dtype=np.float32))
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(np.ones((1, 8), dtype=np.float32), k=0)


# Opens indexes, cuts a file of each in place and asks: a message or, on a bare map, a SIGBUS.
CUTTING = """
import sys
from pathlib import Path
import numpy as np
from unseen.search.index import Index
for word in sys.argv[1:]:
    path = Path(word)
    index = Index.open(path)
    index.search(np.ones((1, 8), dtype=np.float32))
    with next(path.rglob(path.name)).open("r+b") as file:
        file.truncate(200)
    try:
        result = index.search(np.ones((1, 8), dtype=np.float32), k=900)
        message = [(index.image(int(id)), index.thumbnail(int(id))) for id in result.ids[0]]
        index.vectors(), list(index.every())
        print("as it was")
    except ValueError as error:
        print(error)
"""


def test_a_file_cut_while_it_is_open_is_an_error_not_the_end(
    tmp_path: Path, entry: ModelEntry, rows: Rows
) -> None:
    names = ["vectors.npy", "rows.npy", "images.jsonl", "thumbnails.bin"]
    for name in names:
        with Writer.create(tmp_path / name, entry) as writer:
            writer.add(rows(1000))
    words = [sys.executable, "-c", CUTTING, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, message in zip(names, done.stdout.splitlines(), strict=True):
        held = name == "rows.npy"  # in memory
        assert message == "as it was" if held else f"{name} is damaged" in message
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            list(Index.open(tmp_path / name).every()), Index.open(tmp_path / name).thumbnail(900)


def everything(path: Path) -> tuple[object, ...]:
    """What a reader gets of an index."""
    index = Index.open(path)
    result = index.search(np.eye(8, dtype=np.float32), k=4)
    ids = index.ids.tolist()
    message = [index.thumbnail(id) for id in ids], list(index.every())
    return result.ids.tolist(), result.similarities.tolist(), *message


@pytest.mark.parametrize("name", ["vectors.npy", "rows.npy", "images.jsonl", "thumbnails.bin"])
def test_no_flipped_bit_is_found_as_another_image(
    tmp_path: Path, entry: ModelEntry, rows: Rows, name: str
) -> None:
    path = tmp_path / "i"
    with Writer.create(path, entry) as writer:
        writer.add(rows(9))
    whole = everything(path)
    file = next(path.rglob(name))
    for place in range(0, file.stat().st_size, file.stat().st_size // 12):
        flip(file, place, place % 8)
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            everything(path)
        flip(file, place, place % 8)
    assert everything(path) == whole


def test_an_index_that_was_stopped_at_its_very_first_file_is_begun_again(
    tmp_path: Path, entry: ModelEntry, rows: Rows
) -> None:
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / ".manifest.0123abcd.part.json").touch()
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(3))
    assert len(Index.open(tmp_path / "i")) == 3


@pytest.mark.parametrize("content", [b"", b"x", b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("name", ["vectors.npy", "rows.npy"])
def test_files_that_are_no_arrays_are_reported(
    tmp_path: Path, entry: ModelEntry, rows: Rows, name: str, content: bytes
) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(5))
    next(tmp_path.rglob(name)).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        Index.open(tmp_path / "i")


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError("no room")])
def test_what_befalls_a_reader_is_not_called_damage(
    tmp_path: Path,
    entry: ModelEntry,
    rows: Rows,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(5))

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(np, "load", fails)
    with pytest.raises(type(error), match=str(error.args[-1])):
        Index.open(tmp_path / "i")


def test_damage_names_its_cause(tmp_path: Path, entry: ModelEntry, rows: Rows) -> None:
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(5))
    (file,) = tmp_path.rglob("vectors.npy")
    content = file.read_bytes()
    for wrong in (b"", content[:200], content.replace(b"shape", b"sh(pe"), b"PK" + content):
        file.write_bytes(wrong)
        with pytest.raises(
            DamagedError, match=r"vectors.npy is damaged: it holds no array \(\w+: "
        ):
            Index.open(tmp_path / "i")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_vectors_that_are_no_place_are_refused_at_the_door(
    tmp_path: Path, entry: ModelEntry, rows: Rows, value: float
) -> None:
    good, bad = rows(2)
    vector = bad.vector.astype(np.float64)
    vector[3] = value
    with Writer.create(tmp_path / "i", entry) as writer:
        with pytest.raises(ValueError, match=r"/p1\.jpg: its vector"):
            writer.add([good, replace(bad, vector=vector)])
        with pytest.raises(ValueError, match=r"/p1\.jpg: its vector"):
            writer.add([replace(bad, vector=7 * bad.vector)])  # nearer to all than any other
        assert len(writer.index()) == 0


def test_verify_names_images_whose_vector_is_no_place(
    tmp_path: Path, entry: ModelEntry, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = rows(4)
    some[2].vector[:] = np.nan
    with Writer.create(tmp_path / "i", entry) as writer:
        monkeypatch.setattr(writers, "require_places", lambda *_: None)
        writer.add(some)
    (message,) = verify(tmp_path / "i")
    assert "/p2.jpg" in message

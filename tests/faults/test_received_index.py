"""A received or copied index: it changes no stranger's table and answers with its own images."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psycopg
import pytest
import torch
from PIL import Image

from unseen.core import uris
from unseen.data.containers import locations
from unseen.runs.trained_run import Trained
from unseen.search import manifest as manifests
from unseen.search.backends.by_name import external_backend, parse
from unseen.search.image_sources import find
from unseen.search.index import Index
from unseen.search.ingest import ingest
from unseen.search.maintain import rebuild, update
from unseen.search.manifest import ExternalEntry, ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.upgrade import embed_again
from unseen.search.verify import changed_images, verify
from unseen.search.writer import Writer

MODEL = ModelEntry(run="/nowhere", fingerprint="f" * 32, size=8, normalize=True)


@dataclass(frozen=True)
class Store:
    """A kind of vector backend, and where its server is, if it has one."""

    kind: str
    server: str = ""

    def uri(self, path: Path) -> str:
        return self.server or str(path)


@pytest.fixture(params=["pgvector", "milvus"])
def store(request: pytest.FixtureRequest) -> Store:
    server = request.getfixturevalue("postgresql") if request.param == "pgvector" else ""
    return Store(request.param, server)


def rows(count: int, seed: int) -> list[NewImage]:
    vectors = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        NewImage(Metadata(f"/{seed}-{i}.jpg", None, 10, i), vector, b"t")
        for i, vector in enumerate(vectors)
    ]


def built(path: Path, store: Store, uri: Path, count: int = 50) -> Path:
    with Writer.create(path, MODEL) as writer:
        writer.use_backend(parse(f"{store.kind}:{store.uri(uri)}", path))
        writer.add(rows(count, seed=0))
        writer.refresh_backend()
    return path


def added(path: Path, seed: int, count: int = 30) -> list[tuple[int, NewImage]]:
    new = rows(count, seed)
    with Writer.open(path) as writer:
        ids = writer.add(new)
        writer.refresh_backend()
    return list(zip(ids, new, strict=True))


def entry_of(path: Path) -> ExternalEntry:
    entry = manifests.read(path).external
    assert entry is not None
    return entry


def require_result(path: Path, wanted: list[tuple[int, NewImage]]) -> None:
    vectors = np.stack([row.vector for _, row in wanted])
    result = Index.open(path).search(vectors, k=3).ids[:, 0].tolist()
    assert result == [id for id, _ in wanted]


def rewritten(path: Path, **changes: Any) -> None:
    """What an attacker does to a manifest: its checksum is right."""
    manifests.write(path, manifests.read(path).model_copy(update=changes))


# a stranger's table


class Stranger:
    """A table that somebody else made, of the columns an index uses, and what is in it."""

    def __init__(self, store: Store, uri: str) -> None:
        self.kind, self.uri = store.kind, uri
        self._make = self._pgvector if self.kind == "pgvector" else self._milvus
        self._make()

    def entry(self, path: Path) -> ExternalEntry:
        return entry_of(path).model_copy(update={"uri": self.uri, "table": "important"})

    def content(self) -> Any:
        if self.kind == "pgvector":
            comment = "SELECT obj_description('important'::regclass)"
            with psycopg.connect(self.uri) as server:
                rows = server.execute("SELECT * FROM important ORDER BY serial").fetchall()
                return rows, server.execute(comment).fetchall()
        client = self._client()
        client.load_collection("important")
        message = client.query("important", filter="serial > -1", limit=100)
        result = sorted(row["serial"] for row in message)
        return result, client.describe_collection("important")

    def _pgvector(self) -> None:
        with psycopg.connect(self.uri) as server:
            server.execute("DROP TABLE IF EXISTS important")
            server.execute("CREATE TABLE important (serial bigint PRIMARY KEY, vector vector(8))")
            for serial in (1, 77):
                server.execute("INSERT INTO important VALUES (%s, %s)", (serial, str([1.0] * 8)))

    def _milvus(self) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("serial", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=8)
        schema.add_field("label", DataType.VARCHAR, max_length=99, nullable=True)
        index = MilvusClient.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="IP")
        client = self._client()
        client.create_collection("important", schema=schema, index_params=index)
        client.insert(
            "important", [{"serial": n, "vector": [1.0] * 8, "label": "a"} for n in (1, 77)]
        )

    def _client(self) -> Any:
        from pymilvus import MilvusClient

        return MilvusClient(self.uri)


@pytest.fixture
def evil(store: Store, tmp_path: Path) -> tuple[Path, Stranger]:
    """A received index whose manifest names a table of the one who received it."""
    path = built(tmp_path / "evil.index", store, tmp_path / "evil.db")
    stranger = Stranger(store, store.uri(tmp_path / "mine.db"))
    rewritten(path, external=stranger.entry(path))
    return path, stranger


def rebuilt(path: Path, aside: Path) -> None:
    with Writer.create(aside, MODEL) as other:
        other.add(rows(50, seed=9))
    with Writer.open(path) as writer:
        writer.take(aside, vanished={})
        writer.refresh_backend()


def removed(path: Path, aside: Path) -> None:
    with Writer.open(path) as writer:
        writer.remove([1])
        writer.refresh_backend()


@pytest.mark.parametrize("change", [rebuilt, removed, lambda path, aside: added(path, seed=1)])
def test_a_table_without_the_mark_of_the_index_is_neither_changed_nor_dropped(
    evil: tuple[Path, Stranger],
    tmp_path: Path,
    change: Callable[[Path, Path], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, stranger = evil
    before = stranger.content()
    change(path, tmp_path / "aside")
    assert stranger.content() == before
    assert "important" in caplog.text
    assert "is not of" in caplog.text
    assert "\n" not in caplog.messages[0]
    added(path, seed=2)
    require_result(path, added(path, seed=3))
    assert stranger.content() == before


def test_a_table_of_another_index_is_no_more_ones_own(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An index, all that its manifest says included, that names another index's table."""
    uri = tmp_path / "s.db"
    mine, evil = built(tmp_path / "mine", store, uri), built(tmp_path / "evil", store, uri)
    rewritten(evil, external=entry_of(mine))
    before = external_backend(entry_of(mine), MODEL).serials()
    rebuilt(evil, tmp_path / "aside")
    assert external_backend(entry_of(mine), MODEL).serials() == before
    assert "is not of" in caplog.text
    rewritten(evil, identity=manifests.read(mine).identity, external=entry_of(mine))
    removed(evil, tmp_path)  # all but the place is that of the other
    rebuilt(evil, tmp_path / "aside 2")
    assert external_backend(entry_of(mine), MODEL).serials() == before
    assert verify(mine) == []


# a copy


@pytest.fixture
def original(store: Store, tmp_path: Path) -> Path:
    return built(tmp_path / "A", store, tmp_path / "A.db")


@pytest.mark.parametrize("first", ["A", "B"])
def test_a_copy_and_its_original_find_what_each_was_given(
    original: Path, tmp_path: Path, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(original, tmp_path / "B")
    before = entry_of(original)
    seeds = {"A": 1, "B": 2}
    wanted = {
        name: added(tmp_path / name, seeds[name]) for name in sorted(seeds, reverse=first == "B")
    }
    for name, new in wanted.items():
        path = tmp_path / name
        require_result(path, [*zip(range(1, 51), rows(50, seed=0), strict=True), *new])
        assert verify(path) == []
        assert external_backend(entry_of(path), MODEL).serials() == set(range(1, 81))
    assert entry_of(original).table == before.table  # the copy has a new one
    assert entry_of(tmp_path / "B").table != before.table
    assert manifests.read(original).identity != manifests.read(tmp_path / "B").identity
    assert sum("copy" in message for message in caplog.messages) == 1
    with Writer.open(tmp_path / "B") as writer:
        writer.remove([1])
        writer.refresh_backend()
    assert len(external_backend(entry_of(original), MODEL).serials()) == 80


def test_a_copy_that_nobody_wrote_to_answers_right_after_its_original_changed(
    original: Path, tmp_path: Path
) -> None:
    shutil.copytree(original, tmp_path / "B")
    with Writer.open(original) as writer:
        writer.remove(range(1, 20))
        writer.refresh_backend()
    require_result(tmp_path / "B", list(zip(range(1, 51), rows(50, seed=0), strict=True)))


def test_a_moved_index_keeps_its_table(
    original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = entry_of(original).table
    moved = original.rename(tmp_path / "moved")
    for seed in (1, 2):
        require_result(moved, added(moved, seed))
    assert entry_of(moved).table == before
    shutil.copytree(moved, original)  # a copy where the table's index once was
    require_result(original, added(original, seed=3))
    require_result(moved, added(moved, seed=4))
    assert entry_of(moved).table == before
    assert sum("copy" in message for message in caplog.messages) == 1


def test_a_restored_backup_shares_no_numbers_with_what_came_after_it(
    original: Path, tmp_path: Path
) -> None:
    """It lies where the index lay, and numbers new images as the lost ones were."""
    shutil.copytree(original, tmp_path / "backup")
    added(original, seed=1)
    shutil.rmtree(original)
    shutil.copytree(tmp_path / "backup", original)
    require_result(original, added(original, seed=2))
    assert verify(original) == []


def test_a_backup_restored_before_anything_changed_keeps_its_table(
    original: Path, tmp_path: Path
) -> None:
    before = entry_of(original).table
    shutil.copytree(original, tmp_path / "backup")
    shutil.rmtree(original)
    shutil.copytree(tmp_path / "backup", original)
    require_result(original, added(original, seed=2))
    assert entry_of(original).table == before


# an image replaced at equal size and time


class Pixels:
    """Stands for a model: a vector of the pixels themselves."""

    fingerprint, threads = MODEL.fingerprint, 1
    folder = SimpleNamespace(path=Path("/nowhere"))
    network = SimpleNamespace(embedding_size=8)
    config = SimpleNamespace(evaluation=SimpleNamespace(normalize=True))

    def __init__(self) -> None:
        self.prepared_paths: list[str] = []

    def prepared(self, path: Path) -> torch.Tensor:
        self.prepared_paths.append(path.name)
        with Image.open(path) as image:
            return torch.from_numpy(np.asarray(image.convert("RGB")).copy()).float()

    def vectors(self, images: torch.Tensor) -> torch.Tensor:  # [N, H, W, 3]
        return torch.nn.functional.normalize(images.flatten(1)[:, :8] + 1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        bitmap(folder / f"{number}.bmp", seed=number)
    return folder


def bitmap(path: Path, seed: int) -> None:
    """Of one size, whatever it shows."""
    pixels = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def indexed(photos: Path, tmp_path: Path) -> Path:
    path = tmp_path / "images.index"
    with Writer.create(path, MODEL) as writer:
        ingest(writer, cast(Trained, Pixels()), find([photos]))
    return path


def in_place(path: Path, photos: Path) -> None:
    bitmap(path, seed=99)


def by_another_file(path: Path, photos: Path) -> None:
    bitmap(photos.parent / "new.bmp", seed=99)
    os.replace(photos.parent / "new.bmp", path)


def updated(path: Path, thorough: bool = False) -> list[str]:
    """The images that were embedded again."""
    model = Pixels()
    with Writer.open(path) as writer:
        update(writer, cast(Trained, model), [], thorough=thorough)
    return model.prepared_paths


@pytest.mark.parametrize("replaced", [in_place, by_another_file])
def test_an_image_replaced_at_equal_size_and_time_is_noticed(
    indexed: Path, photos: Path, replaced: Callable[[Path, Path], None]
) -> None:
    image = photos / "2.bmp"
    before = image.stat()
    replaced(image, photos)
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = image.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert changed_images(Index.open(indexed)) == [str(image)]
    assert updated(indexed) == ["2.bmp"]
    assert changed_images(Index.open(indexed)) == []
    vector = Pixels().vectors(Pixels().prepared(image)[None])
    assert Index.open(indexed).search(vector, k=1).similarities[0, 0] == pytest.approx(1)


def test_images_restored_on_another_disk_are_compared_by_content_and_stay(
    indexed: Path, photos: Path
) -> None:
    """Their times and inodes are new, they are not; the new state is read once and noted."""
    shutil.copytree(photos, photos.parent / "copy", copy_function=shutil.copy)
    shutil.rmtree(photos)
    (photos.parent / "copy").rename(photos)
    ids = Index.open(indexed).ids.tolist()
    assert changed_images(Index.open(indexed)) == []
    assert updated(indexed) == []
    index = Index.open(indexed)
    assert sorted(index.ids.tolist()) == ids
    assert verify(indexed) == []
    noted = {metadata.path: metadata.modified for _, metadata in index.every()}
    assert noted == {str(path): path.stat().st_mtime_ns for path in photos.iterdir()}


def test_thorough_reads_every_image(
    indexed: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk has no such times, or they were set back with the clock."""
    image = photos / "1.bmp"
    with monkeypatch.context() as patch:
        known = {str(path): locations.state(path) for path in photos.iterdir()}
        patch.setattr(locations, "state", lambda place: known[str(place)])
        bitmap(image, seed=99)
        assert changed_images(Index.open(indexed)) == []
        assert changed_images(Index.open(indexed), thorough=True) == [str(image)]
        assert updated(indexed) == []
        assert updated(indexed, thorough=True) == ["1.bmp"]
        assert changed_images(Index.open(indexed), thorough=True) == []


# rows that lie elsewhere


def named(path: Path, *places: str) -> Path:
    """An index whose images lie where its maker says."""
    with Writer.create(path, MODEL) as writer:
        new = zip(rows(len(places), seed=0), places, strict=True)
        writer.add(
            [
                replace(row, metadata=replace(row.metadata, path=place, compatible=True))
                for row, place in new
            ]
        )
    return path


CONNECTING: dict[str, Callable[[Path], Any]] = {
    "update": updated,
    "update --thorough": lambda path: updated(path, thorough=True),
    "verify --thorough": lambda path: changed_images(Index.open(path), thorough=True),
    "rebuild": lambda path: rebuild(path, cast(Trained, Pixels())),
    "rebuild --remove-missing": lambda path: rebuild(
        path, cast(Trained, Pixels()), remove_missing=True
    ),
    "upgrade": lambda path: embed_again(path, cast(Trained, Pixels())),
}


@pytest.mark.parametrize("command", CONNECTING)
@pytest.mark.parametrize("row", ["https://{}/a.jpg", "https://{}/a.tar::a.jpg"])
def test_a_row_elsewhere_connects_only_if_the_user_said_so(
    command: str, row: str, host: str, tmp_path: Path
) -> None:
    path = named(tmp_path / "received.index", row.format(host))
    with pytest.raises(ValueError, match=r"https://.*a\.jpg lies.*allow_remote=True") as caught:
        CONNECTING[command](path)
    assert "\n" not in str(caught.value)
    assert changed_images(Index.open(path)) == []  # without --thorough nothing elsewhere is asked


def test_said_so_the_row_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "s3://bucket/a.jpg"
    path, asked = named(tmp_path / "own.index", place), list[object]()
    monkeypatch.setattr(uris, "state", asked.append)
    with uris.remote_rows(), pytest.raises(AttributeError):
        changed_images(Index.open(path), thorough=True)
    assert asked == [place]

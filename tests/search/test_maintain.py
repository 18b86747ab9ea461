"""What is gone, stopped or damaged: nothing is lost that is still known, nothing comes back."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.runs.trained_run import Trained
from unseen.search import embedding
from unseen.search import ingest as ingesting
from unseen.search import manifest as manifests
from unseen.search import segment as segments
from unseen.search.index import Index
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.maintain import rebuild, update
from unseen.search.manifest import AGAIN, DamagedError
from unseen.search.verify import leftovers, verify
from unseen.search.writer import Writer


@pytest.fixture
def photos(tmp_path: Path, images: Path) -> Path:
    shutil.copytree(images, tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def index(tmp_path: Path, model: Trained, photos: Path) -> Path:
    """Two segments, of classes 0 to 2 and 3 to 5; of the first one an image was removed."""
    path = tmp_path / "my.index"
    with Writer.create(path, model_entry(model)) as writer:
        for some in ((0, 1, 2), (3, 4, 5)):
            named = [source for source in find([photos]) if int(str(source.label)[-1]) in some]
            ingest(writer, model, named)
        writer.remove([2])
    return path


def known(path: Path) -> dict[str, int]:
    return {metadata.path: id for id, metadata in Index.open(path).every()}


class Counted:
    """A model that counts what it embeds, and can be told to stop like a kill would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> None:
        self.paths: list[str] = []
        prepare = embedding._prepared

        def counting(model: Trained, wanted: embedding.Wanted, thumbnails: bool) -> object:
            if stop_after is not None and len(self.paths) >= stop_after:
                raise KeyboardInterrupt
            self.paths.append(str(wanted[0].path))
            return prepare(model, wanted, thumbnails)

        monkeypatch.setattr(embedding, "_prepared", counting)
        monkeypatch.setattr(embedding, "_GROUP", 1)
        for name in ("BATCH", "COMMIT"):
            monkeypatch.setattr(ingesting, name, 2)


# a disk that is not mounted


def test_update_on_an_empty_mount_point_is_refused(
    index: Path, photos: Path, model: Trained, tmp_path: Path
) -> None:
    before = known(index)
    photos.rename(tmp_path / "elsewhere")
    photos.mkdir()
    for work in (
        lambda: update_of(index, model),
        lambda: rebuild(index, model),
    ):
        with pytest.raises(ValueError, match="remove_missing=True"):
            work()
        assert known(index) == before
    assert update_of(index, model, remove_missing=True) == 29
    assert known(index) == {}
    photos.rmdir()
    (tmp_path / "elsewhere").rename(photos)
    update_of(index, model, photos)
    assert {path: id for path, id in known(index).items() if path in before} == before
    assert verify(index) == []
    assert leftovers(index) == []


def update_of(index: Path, model: Trained, *places: Path, remove_missing: bool = False) -> int:
    with Writer.open(index) as writer:
        new = find(places) if places else []
        return update(writer, model, new, remove_missing=remove_missing)[0]


def test_a_small_disk_that_is_not_mounted_is_noticed_by_its_empty_folder(
    index: Path, photos: Path, model: Trained
) -> None:
    for file in sorted((photos / "class 3").iterdir())[:2]:
        file.unlink()  # two of 29, deleted by hand: followed
    assert update_of(index, model) == 2
    shutil.rmtree(photos / "class 4")  # a class deleted, more than a tenth: asked
    with pytest.raises(ValueError, match="5 of 27"):
        update_of(index, model)
    update_of(index, model, remove_missing=True)
    for file in (photos / "class 3").iterdir():
        file.rename(photos / file.name)
    with pytest.raises(ValueError, match="class 3 is empty"):
        update_of(index, model)


def test_an_explicit_removal_is_not_taken_back(index: Path, photos: Path, model: Trained) -> None:
    file = photos / "class 5" / "0.png"
    id = known(index)[str(file.resolve())]
    content = file.read_bytes()
    file.unlink()
    assert update_of(index, model) == 1
    file.write_bytes(content)
    update_of(index, model, photos)
    assert known(index)[str(file.resolve())] == id
    with Writer.open(index) as writer:
        writer.remove([id])
        assert str(file.resolve()) not in writer.vanished()


# a rebuild that is stopped


def test_a_stopped_rebuild_goes_on_and_what_was_removed_meanwhile_stays_removed(
    index: Path, model: Trained, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = known(index)
    with monkeypatch.context() as patch:
        stopped = Counted(patch, stop_after=15)
        with pytest.raises(KeyboardInterrupt):
            rebuild(index, model)
    assert known(index) == before
    assert verify(index) == []
    done = len(Index.open(index / "rebuild"))
    assert 5 < done <= len(stopped.paths)
    assert verify(index / "rebuild") == []
    gone = [id for id in before.values() if id % 3 == 0]
    with Writer.open(index) as writer:
        writer.remove(gone)
        Image.new("RGB", (40, 40), "red").save(photos / "class 0" / "new.png")
        ingest(writer, model, find([photos / "class 0" / "new.png"]))
    expected = known(index)
    with monkeypatch.context() as patch:
        rest = Counted(patch)
        rebuild(index, model)
    assert known(index) == expected
    assert len(rest.paths) <= len(before) + 1 - done
    assert verify(index) == []
    assert not (index / "rebuild").exists()


# damage


def first(path: Path) -> Path:
    return path / segments.FOLDER / manifests.read(path).segments[0].name


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


Damage = Callable[[Path], None]


@pytest.mark.parametrize("damage", [flipped, emptied, Path.unlink])
@pytest.mark.parametrize(
    "name", ["vectors.npy", "thumbnails.bin", "rows.npy", "images.jsonl", "dead-*.npy"]
)
def test_damage_is_one_line_that_says_what_makes_the_index_again(
    index: Path, photos: Path, model: Trained, name: str, damage: Damage
) -> None:
    (file,) = first(index).glob(name)
    damage(file)
    (message,) = verify(index)
    assert str(file) in message
    assert AGAIN in message
    with pytest.raises(DamagedError, match=file.name):
        everything(index)
    shutil.rmtree(index)  # as the line says
    with Writer.create(index, model_entry(model)) as writer:
        ingest(writer, model, find([photos]))
    assert len(known(index)) == 30
    assert verify(index) == []


@pytest.mark.parametrize("damage", [flipped, emptied])
def test_a_damaged_manifest_is_one_line(index: Path, damage: Damage) -> None:
    damage(index / manifests.NAME)
    with pytest.raises(DamagedError, match=AGAIN):
        Index.open(index)
    with pytest.raises(DamagedError, match=AGAIN), Writer.open(index):
        pass
    assert AGAIN in verify(index)[0]


def everything(path: Path) -> None:
    index = Index.open(path)
    index.vectors(), list(index.every()), [index.thumbnail(id) for id in index.ids.tolist()]


def test_a_image_that_the_network_cannot_place_is_left_out_and_named(
    tmp_path: Path, model: Trained, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = Trained.vectors

    def spoilt(self: Trained, images: torch.Tensor) -> torch.Tensor:
        made = vectors(self, images)
        made[0, 0] = np.nan
        return made

    monkeypatch.setattr(Trained, "vectors", spoilt)
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        done = ingest(writer, model, find([photos]))
    assert (done.added, len(done.unreadable)) == (29, 1)
    assert "0.png (its vector" in done.unreadable[0]

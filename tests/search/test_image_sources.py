"""Images that are no files of this disk, found, embedded, indexed and kept in line."""

from pathlib import Path

import fsspec
import pytest
import torch

from tests.data import formats
from unseen.core import uris
from unseen.runs.trained_run import Trained
from unseen.search.image_sources import find, source_of
from unseen.search.index import Index
from unseen.search.ingest import ingest, model_entry
from unseen.search.maintain import named, rebuild, update
from unseen.search.writer import Writer

pytestmark = pytest.mark.usefixtures("memory_uris")


@pytest.mark.parametrize("name", ["parquet", "hugging_face", "webdataset", "coco", "memory"])
def test_the_same_vectors_from_wherever(
    name: str, model: Trained, images: Path, tmp_path: Path
) -> None:
    plain, other = find([images]), find([formats.FORMATS[name](images, tmp_path / name)])
    assert [source.label for source in other] == [source.label for source in plain]
    vectors = model.embed([source.image for source in other])
    assert torch.equal(vectors, model.embed([source.image for source in plain]))


@pytest.mark.parametrize("name", ["webdataset", "memory"])
def test_an_index_of_them_is_built_searched_updated_and_rebuilt(
    name: str, model: Trained, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        uris.REMOTE_VARIABLE, "1"
    )  # images of memory:// lie elsewhere, the index not
    word = formats.FORMATS[name](images, tmp_path / f"{name}s")
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        assert ingest(writer, model, find([word])).added == 30
        metadata = writer.index().metadata(1)
        assert source_of(metadata).name in (
            f"{word}/000.tar::class 0/0.png",
            f"{word}/class 0/0.png",
        )
        assert named(writer.index(), [metadata.path]) == [1]
        assert update(writer, model, find([word]))[0] == 0
    before = Index.open(tmp_path / "i").vectors([1, 30])
    assert rebuild(tmp_path / "i", model).added == 30
    assert (Index.open(tmp_path / "i").vectors([1, 30]) == before).all()
    if name == "memory":
        fsspec.filesystem("memory").rm(word, recursive=True)
    else:
        (tmp_path / "webdatasets" / "000.tar").unlink()
    with Writer.open(tmp_path / "i") as writer, pytest.raises(ValueError, match="are gone"):
        update(writer, model, [])


def test_what_breaks_elsewhere_is_left_out_and_named(
    model: Trained, images: Path, tmp_path: Path
) -> None:
    word = formats.memory(images, tmp_path / "broken")
    fsspec.filesystem("memory").pipe_file("/broken/class 0/0.png", b"no image")
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        done = ingest(writer, model, find([word]))
    assert done.unreadable == [f"{word}/class 0/0.png (not an image)"]
    assert done.added == 29


def test_a_label_that_is_no_text_is_refused(images: Path) -> None:
    with pytest.raises(ValueError, match=r"label must be UTF-8 text, got Caf\\xe9"):
        find([images], label="Caf\udce9")

"""Images taken out of an index: whole files, names that stay in their folder."""

import csv
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unseen.core.files import sha256
from unseen.search.export_items import archive, size_of, table
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.writer import Writer

HOSTILE = ["../../evil", "=1+1", "a/b", "..", "<img src=x>", "鳥", "C:\\x", "\x00\n", "x" * 400]


@pytest.fixture
def index(
    tmp_path: Path, entry: ModelEntry, rows: Callable[..., list[NewImage]]
) -> tuple[Index, list[int]]:
    """Files with hostile labels; the last one is gone."""
    made = []
    for number, (row, label) in enumerate(zip(rows(len(HOSTILE)), HOSTILE, strict=True)):
        path = tmp_path / f"=p {number}.jpg"
        path.write_bytes(bytes([number]) * 100)
        metadata = replace(row.metadata, path=str(path), label=label, digest=sha256(path))
        made.append(replace(row, metadata=metadata))
    Path(made[-1].metadata.path).unlink()
    with Writer.create(tmp_path / "index", entry) as writer:
        ids = writer.add(made)
    return Index.open(tmp_path / "index"), ids


def test_the_archive_holds_whole_files_and_stays_in_its_folder(
    index: tuple[Index, list[int]],
) -> None:
    content = b"".join(archive(*index))
    with zipfile.ZipFile(io.BytesIO(content)) as unpacked:
        assert unpacked.testzip() is None
        names = unpacked.namelist()
        assert len(names) == len(set(names)) == len(HOSTILE)  # the list, and all but one
        for name in names:
            parts = name.split("/")
            assert len(parts) <= 2
            assert not any(part in ("", ".", "..") or "\\" in part for part in parts), name
        listed = csv.DictReader(io.StringIO(unpacked.read("images.csv").decode(), newline=""))
        for number, row in enumerate(list(listed)[:-1]):
            assert unpacked.read(row["file"]) == bytes([number]) * 100


def test_the_table_is_text_for_a_spreadsheet(index: tuple[Index, list[int]]) -> None:
    read = list(csv.DictReader(io.StringIO(table(*index), newline="")))
    assert [row["label"].replace("\r\n", "\n") for row in read] == [
        f"'{label}" if label[0] == "=" else label for label in HOSTILE
    ]
    assert all(row["name"].startswith("'=p ") for row in read)
    assert size_of(*index) == 100 * (len(HOSTILE) - 1)


def test_the_archive_comes_in_pieces(
    index: tuple[Index, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.search.export_items.PIECE", 10)
    pieces = list(archive(*index))
    assert len(pieces) > 10 * (len(HOSTILE) - 1)
    assert zipfile.ZipFile(io.BytesIO(b"".join(pieces))).testzip() is None


def test_only_what_was_embedded_leaves_the_index(
    tmp_path: Path, entry: ModelEntry, rows: Callable[..., list[NewImage]]
) -> None:
    """A received index names any file, but who made it does not know what is in it."""
    secret, image = tmp_path / "passwd", tmp_path / "image.png"
    secret.write_text("root:x:0:0")
    image.write_bytes(b"an image")
    (tmp_path / "link.png").symlink_to(secret)
    named = [(secret, ""), (secret, "0" * 64), (tmp_path / "link.png", sha256(image))]
    metadata = [
        replace(row.metadata, path=str(path), digest=digest)
        for row, (path, digest) in zip(rows(4), [*named, (image, sha256(image))], strict=True)
    ]
    with Writer.create(tmp_path / "index", entry) as writer:
        ids = writer.add(
            [replace(row, metadata=f) for row, f in zip(rows(4), metadata, strict=True)]
        )
    with zipfile.ZipFile(
        io.BytesIO(b"".join(archive(Index.open(tmp_path / "index"), ids)))
    ) as made:
        assert len(made.namelist()) == 2
        assert [made.read(name) for name in made.namelist()[1:]] == [b"an image"]

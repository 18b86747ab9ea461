"""Pictures taken out of an index: whole files, names that stay in their folder."""

import csv
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewPicture
from unseen.search.take_out import archive, size_of, table
from unseen.search.writer import Writer

HOSTILE = ["../../evil", "=1+1", "a/b", "..", "<img src=x>", "鳥", "C:\\x", "\x00\n", "x" * 400]


@pytest.fixture
def index(
    tmp_path: Path, entry: ModelEntry, rows: Callable[..., list[NewPicture]]
) -> tuple[Index, list[int]]:
    """Files with hostile labels; the last one is gone."""
    made = []
    for number, (row, label) in enumerate(zip(rows(len(HOSTILE)), HOSTILE, strict=True)):
        path = tmp_path / f"=p {number}.jpg"
        path.write_bytes(bytes([number]) * 100)
        made.append(replace(row, facts=replace(row.facts, path=str(path), label=label)))
    Path(made[-1].facts.path).unlink()
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
        listed = csv.DictReader(io.StringIO(unpacked.read("pictures.csv").decode(), newline=""))
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
    monkeypatch.setattr("unseen.search.take_out.PIECE", 10)
    pieces = list(archive(*index))
    assert len(pieces) > 10 * (len(HOSTILE) - 1)
    assert zipfile.ZipFile(io.BytesIO(b"".join(pieces))).testzip() is None

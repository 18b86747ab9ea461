"""Contents are hashed once, kept, and hashed again when a file may have changed."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.folder import Folder
from unseen.data.images import item_digests
from unseen.data.images.item_digests import file_digests, learn, numbered, row_digests


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files that were read, with a cache of the test's own and no waiting for clocks."""
    result: list[str] = []
    honest = item_digests.digest
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(item_digests, "_YOUNG", 0)
    monkeypatch.setattr(
        item_digests, "digest", lambda path: result.append(path.name) or honest(path)
    )
    return result


def files(root: Path, **contents: bytes) -> list[Path]:
    root.mkdir(exist_ok=True)
    for name, content in contents.items():
        (root / name).write_bytes(content)
    return [root / name for name in contents]


def test_files_are_read_once(tmp_path: Path, read: list[str]) -> None:
    paths = files(tmp_path / "data", a=b"one", b=b"two", c=b"one")
    seen: list[tuple[int, int]] = []
    result = file_digests(tmp_path / "data", paths, lambda *p: seen.append(p))
    assert result == [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    assert sorted(read) == ["a", "b", "c"]
    assert seen[-1] == (3, 3)
    assert file_digests(tmp_path / "data", paths) == result
    assert len(read) == 3
    stamp = paths[1].stat()
    paths[1].write_bytes(b"six")  # as long, and its time set back
    os.utime(paths[1], ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    again = file_digests(tmp_path / "data", paths)
    assert read[3:] == ["b"]
    assert again[1] == hashlib.sha256(b"six").digest()


def test_a_file_that_has_just_been_written_is_read_again(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_digests, "_YOUNG", 10**15)
    paths = files(tmp_path / "data", a=b"one")
    for times in (1, 2):
        file_digests(tmp_path / "data", paths)
        assert len(read) == times


def test_a_file_that_is_gone_is_like_no_other(tmp_path: Path, read: list[str]) -> None:
    gone = [tmp_path / "gone", tmp_path / "gone too"]
    result = file_digests(tmp_path, gone)
    assert len(set(result)) == 2
    files(tmp_path, gone=b"back")
    assert file_digests(tmp_path, gone)[0] == hashlib.sha256(b"back").digest()


def test_what_a_full_check_finds_is_kept(tmp_path: Path, read: list[str]) -> None:
    [path] = files(tmp_path / "data", a=b"one")
    learn(tmp_path / "data", {path: b"x" * 32})
    assert file_digests(tmp_path / "data", [path]) == [b"x" * 32]
    assert not read


def test_a_damaged_cache_costs_a_reading(tmp_path: Path, read: list[str]) -> None:
    paths = files(tmp_path / "data", a=b"one")
    first = file_digests(tmp_path / "data", paths)
    [kept] = (tmp_path / "cache" / "digests").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    assert file_digests(tmp_path / "data", paths) == first
    assert read == ["a", "a"]


def test_rows_and_names() -> None:
    rows = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]])
    result = row_digests(rows)
    assert result[0] == result[1] != result[2]
    assert row_digests(rows.astype(np.float32))[0] != result[0]
    assert numbered(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_a_image_changed_in_its_middle_changes_the_fingerprint(tmp_path: Path) -> None:
    """More than half of a large bitmap, and neither its size nor its first and last 16 kB."""
    for c in range(4):
        (tmp_path / f"{c}").mkdir()
        Image.new("RGB", (200, 130), (60 * c, 0, 0)).save(tmp_path / f"{c}" / "0.bmp")
    before = Folder(tmp_path)
    was = before.fingerprint(), before.digests()
    path = before.path(2)
    content = bytearray(path.read_bytes())
    content[17_000:-17_000] = bytes(255 - b for b in content[17_000:-17_000])
    path.write_bytes(bytes(content))
    after = Folder(tmp_path)
    assert after.fingerprint() != was[0]
    changed = [one != two for one, two in zip(after.digests(), was[1], strict=True)]
    assert changed == [False, False, True, False]

"""Pictures of many pixels in few bytes: decoded by a child, one at a time, within its limits."""

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.pictures.decode import UnreadablePictureError, decode
from unseen.search.service import decoding
from unseen.search.service.decoding import BusyError, Reader


def written(form: str, size: tuple[int, int], **how: object) -> bytes:
    file = io.BytesIO()
    ramp = np.linspace(0, 255, 40 * 30 * 3).reshape(30, 40, 3).astype(np.uint8)
    Image.fromarray(ramp).resize(size).save(file, form, **how)
    return file.getvalue()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


@pytest.fixture(scope="module")
def webp() -> bytes:
    return written("WEBP", (1600, 1200), method=0)


def test_small_pictures_and_reducible_ones_are_embedded_as_the_index_s_were(reader: Reader) -> None:
    for content in (written("PNG", (900, 900)), written("JPEG", (3000, 2000))):
        assert reader.upload(content) is content
    assert reader._child is None


@pytest.mark.parametrize("box", [None, (0.25, 0.5, 0.5, 0.9)])
def test_a_large_picture_comes_from_the_child_as_it_is_but_smaller(
    reader: Reader, box: decoding.Box | None
) -> None:
    content = written("PNG", (2400, 2100))
    found = reader.upload(content, box)
    assert isinstance(found, Image.Image)
    whole = decode(content)
    part = whole if box is None else whole.crop((600, 1050, 1800, 2100))
    assert min(found.size) >= min(part.size) // 2 >= 512
    near = np.asarray(part.resize(found.size, Image.Resampling.BOX), dtype=int)
    assert np.abs(near - np.asarray(found, dtype=int)).max() <= 2
    progressive = written("JPEG", (2400, 2100), progressive=True)
    assert isinstance(reader.upload(progressive), Image.Image)


def test_the_child_dies_of_what_it_cannot_and_the_next_one_reads_on(
    webp: bytes, tmp_path: Path
) -> None:
    large = written("PNG", (3000, 3000))
    for weak, reason in [(Reader(memory=60_000_000), "memory"), (Reader(seconds=0.001), "long")]:
        with pytest.raises(UnreadablePictureError, match=reason):
            weak.upload(large)
        weak.seconds, weak.memory = decoding.SECONDS, decoding.MEMORY
        weak.close()
        assert isinstance(weak.upload(webp), Image.Image)
        (tmp_path / "large.webp").write_bytes(webp)
        assert max(weak.shown(tmp_path / "large.webp").size) == 1600
        weak.close()


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"RIFF\x10\0\0\0WEBPVP8 "])
def test_what_is_no_picture_is_told_before_anything_is_decoded(
    reader: Reader, content: bytes
) -> None:
    with pytest.raises(UnreadablePictureError):
        reader.upload(content)
    file = io.BytesIO()
    Image.new("1", (50_000, 1000)).save(file, "PNG")
    with pytest.raises(UnreadablePictureError, match="limit"):
        reader.upload(file.getvalue())
    assert reader._child is None or content.startswith(b"RIFF")


def test_webp_is_not_even_opened_here(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow takes room for all pixels when it opens one."""
    content = written("WEBP", (40, 30), lossless=True)
    expected = decode(content)
    monkeypatch.setattr(decoding, "PictureFile", None)
    found = reader.upload(content)
    assert isinstance(found, Image.Image)
    assert found.tobytes() == expected.tobytes()


def test_a_damaged_large_picture_does_not_end_the_child(reader: Reader, webp: bytes) -> None:
    png = written("PNG", (1200, 1200), compress_level=0)
    with pytest.raises(UnreadablePictureError, match="ends too early"):
        reader.upload(png[: len(png) // 2])
    child = reader._child
    assert isinstance(reader.upload(webp), Image.Image)
    assert reader._child is child


def test_large_pictures_come_one_at_a_time_and_a_crowd_is_sent_away(
    reader: Reader, webp: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, inside = threading.Event(), []
    watched = Reader._watched

    def slow(self: Reader) -> object:
        inside.append(1)
        assert len(inside) == 1
        go.wait()
        inside.pop()
        return watched(self)

    monkeypatch.setattr(Reader, "_watched", slow)

    def asked(_: int) -> bool:
        try:
            return isinstance(reader.upload(webp), Image.Image)
        except BusyError:
            go.set()  # the first one that is sent away lets the others in
            return False

    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(asked, range(8)))
    assert told.count(True) >= decoding.AT_ONCE
    assert False in told


def test_the_child_ends_with_its_parent(reader: Reader, webp: bytes) -> None:
    reader.upload(webp)
    child = reader._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()  # as when the parent is gone
    assert child.wait(timeout=20) == 0

"""Uploads are decoded by children, within their limits, as the files of the index were."""

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from unseen.data.images.decode import SafeImageFile, UnreadableImageError, decode
from unseen.runs.trained_run import Trained
from unseen.search.service import decoding
from unseen.search.service.decoding import BusyError, Reader


def written(form: str, size: tuple[int, int], **how: object) -> bytes:
    file = io.BytesIO()
    ramp = np.linspace(0, 255, 40 * 30 * 3).reshape(30, 40, 3).astype(np.uint8)
    Image.fromarray(ramp).resize(size).save(file, form, **how)
    return file.getvalue()


def read(reader: Reader, content: bytes, box: decoding.Box | None = None) -> np.ndarray:
    with reader.opened(content, box) as image:
        return image.pixels()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


@pytest.fixture(scope="module")
def webp() -> bytes:
    return written("WEBP", (1600, 1200), method=0)


def test_uploads_are_read_as_the_files_of_the_index_are(reader: Reader, model: Trained) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for content in (
        written("PNG", (90, 70)),
        written("JPEG", (1300, 900)),
        written("JPEG", (640, 480), exif=exif),
        written("GIF", (300, 200)),
        written("WEBP", (400, 10), lossless=True),
    ):
        with reader.opened(content) as uploaded, SafeImageFile(content) as file:
            assert uploaded.size == file.size
            sent = model.prepared(uploaded)
        assert bool((sent == model.prepared(content)).all())


def test_large_images_have_a_child_of_their_own(reader: Reader, webp: bytes) -> None:
    for content in (
        written("PNG", (900, 900)),
        written("JPEG", (3000, 2000)),
        written("WEBP", (40, 30)),
    ):
        read(reader, content)
    assert reader.slow.process is None
    quick = reader.quick.process
    for content in (webp, written("JPEG", (1200, 1100), progressive=True), written("GIF", (8, 8))):
        read(reader, content)
    read(reader, written("JPEG", (1200, 1100)), (0.5, 0.5, 0.2, 0.2))
    assert reader.slow.process is not None
    assert reader.quick.process is quick


@pytest.mark.parametrize("box", [None, (0.25, 0.5, 0.5, 0.9)])
def test_a_large_image_comes_as_it_is_but_smaller(reader: Reader, box: decoding.Box | None) -> None:
    content = written("PNG", (2400, 2100))
    result = read(reader, content, box)
    whole = decode(content)
    part = whole if box is None else whole.crop((600, 1050, 1800, 2100))
    height, width = result.shape[:2]
    assert width * height <= decoding.MAX_PIPED
    assert min(height, width) >= min(part.size) // 2 >= 512
    near = np.asarray(part.resize((width, height), Image.Resampling.BOX), dtype=int)
    assert np.abs(near - result.astype(int)).max() <= 2


def test_the_child_dies_of_what_it_cannot_and_the_next_one_reads_on(webp: bytes) -> None:
    large = written("PNG", (3000, 3000))
    for weak, reason in [(Reader(memory=60_000_000), "memory"), (Reader(seconds=0.001), "long")]:
        with pytest.raises(UnreadableImageError, match=reason):
            read(weak, large)
        weak.slow.seconds, weak.slow._limits = decoding.SECONDS, Reader().slow._limits
        weak.slow.close()
        assert read(weak, webp).shape == (1200, 1600, 3)
        assert weak.shown(webp, 1024).size == (1600, 1200)
        weak.close()


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"RIFF\x10\0\0\0WEBPVP8 ", b"\xff\xd8\xff"])
def test_what_is_no_image_is_reported(reader: Reader, content: bytes) -> None:
    with pytest.raises(UnreadableImageError):
        read(reader, content)


def test_too_many_pixels_are_reported_before_anything_is_decoded(reader: Reader) -> None:
    file = io.BytesIO()
    Image.new("1", (50_000, 1000)).save(file, "PNG")
    with pytest.raises(UnreadableImageError, match="50000 x 1000 pixels, the limit is 40000000"):
        read(reader, file.getvalue())
    assert reader.quick.process is None
    assert reader.slow.process is None


def test_a_damaged_large_image_does_not_end_the_child(reader: Reader, webp: bytes) -> None:
    png = written("PNG", (1200, 1200), compress_level=0)
    with pytest.raises(UnreadableImageError, match="ends too early"):
        read(reader, png[: len(png) // 2])
    process = reader.slow.process
    read(reader, webp)
    assert reader.slow.process is process


def test_a_reader_that_fails_between_size_and_pixels_gets_a_new_child(reader: Reader) -> None:
    content = written("PNG", (20, 10))
    with pytest.raises(ZeroDivisionError), reader.opened(content):
        _ = 1 / 0
    assert read(reader, content).shape == (10, 20, 3)


def test_large_images_come_one_at_a_time_and_a_crowd_is_sent_away(
    reader: Reader, webp: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, inside = threading.Event(), []
    watched = reader.slow._watched

    @contextmanager
    def slow() -> Iterator[object]:
        inside.append(1)
        assert len(inside) == 1
        assert read(reader, written("PNG", (20, 10))).size  # meanwhile others are answered
        go.wait()
        with watched() as process:
            yield process
        inside.pop()

    monkeypatch.setattr(reader.slow, "_watched", slow)

    def request(_: int) -> bool:
        try:
            return bool(read(reader, webp).size)
        except BusyError:
            go.set()  # the first one that is sent away lets the others in
            return False

    with ThreadPoolExecutor(8) as threads:
        message = list(threads.map(request, range(8)))
    assert message.count(True) >= decoding.AT_ONCE
    assert False in message


def test_the_child_ends_with_its_parent(reader: Reader, webp: bytes) -> None:
    read(reader, webp)
    process = reader.slow.process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as when the parent is gone
    assert process.wait(timeout=20) == 0

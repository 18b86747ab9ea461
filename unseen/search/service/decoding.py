"""Pictures from strangers, decoded within bounded memory.

A file of two kilobytes can hold forty million pixels, and needs up to 24 bytes for each while it is
decoded. Small pictures, but for WebP and AVIF, and JPEGs that libjpeg reduces while it reads them,
are decoded here. Every other one is decoded and reduced by a child process that may take MEMORY
bytes and SECONDS seconds, one picture at a time; what it does not manage is refused. The child
stays for the next picture.
"""

import math
import os
import resource
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from PIL import Image

from unseen.data.containers import places
from unseen.data.pictures.decode import PictureFile, UnreadablePictureError

MAX_PIXELS = 40_000_000
SMALL = 1_000_000  # pixels that are decoded here, whatever the format
REDUCED = 4_000_000  # pixels of a picture that comes back from the child, at most
SIDE = 1024  # its short side is reduced to no less, if these pixels allow it
MEMORY = 500_000_000  # bytes of the child
SECONDS = 20.0
AT_ONCE = 4  # pictures decoded here, and those that wait for the child

Box = tuple[float, float, float, float]  # left, top, width, height, as shares of the picture
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
_ASKED, _GIVEN = struct.Struct("4dq"), struct.Struct("qqq")


class BusyError(Exception):
    """Too many large pictures at once."""


class Reader:
    """Decodes for a service. memory, seconds: of the child."""

    def __init__(self, memory: int = MEMORY, seconds: float = SECONDS) -> None:
        self.memory, self.seconds = memory, seconds
        self._here, self._places = threading.Semaphore(AT_ONCE), threading.Semaphore(AT_ONCE)
        self._one = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def upload(self, content: bytes, box: Box | None = None) -> bytes | Image.Image:
        """What `Trained.embed` takes: the file itself, where that is decoded cheaply, as the files
        of the index were; or a picture, or the part of it in the box."""
        if not _is_large(content, boxed=box is not None):
            return content if box is None else self._cut(content, box)
        return self._by_child(content, box or WHOLE)

    def shown(self, path: Path) -> Image.Image:
        """A picture of the index, to be looked at."""
        try:
            content = places.content(path)
        except OSError as error:
            raise UnreadablePictureError(path, str(error.strerror)) from error
        if _is_large(content, boxed=False):
            return self._by_child(content, WHOLE)
        return self._cut(content, WHOLE)

    def _cut(self, content: bytes, box: Box) -> Image.Image:
        with self._here:
            return reduced(content, box)

    def _by_child(self, content: bytes, box: Box) -> Image.Image:
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            with self._one, self._watched() as child:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(_ASKED.pack(*box, len(content)) + content)
                child.stdin.flush()
                width, height, size = _GIVEN.unpack(_exactly(child.stdout, _GIVEN.size))
                answer = _exactly(child.stdout, size)
        except (OSError, EOFError) as error:  # it was killed, or died of what it read
            raise UnreadablePictureError("(uploaded)", "it takes too long to decode") from error
        finally:
            self._places.release()
        if not width:
            raise UnreadablePictureError("(uploaded)", answer.decode())
        return Image.frombytes("RGB", (width, height), answer)

    @contextmanager
    def _watched(self) -> Iterator[subprocess.Popen[bytes]]:
        """A living child, killed when it takes too long, forgotten when anything goes wrong."""
        if self._child is None or self._child.poll() is not None:
            words = [sys.executable, "-m", __name__, str(self.memory)]
            self.close()
            self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._end = weakref.finalize(self, _end, self._child)
        child = self._child
        watch = threading.Timer(self.seconds, child.kill)
        watch.start()
        try:
            yield child
        except BaseException:
            self.close()
            raise
        finally:
            watch.cancel()

    def close(self) -> None:
        """Ends the child; the next large picture starts another."""
        if self._child is not None:
            self._child = None
            self._end()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    child.wait()


def reduced(content: bytes, box: Box = WHOLE) -> Image.Image:
    """The part of a picture, not larger than it is of use."""
    with PictureFile(content, MAX_PIXELS) as picture:
        width, height = picture.size
        left, top = int(box[0] * width), int(box[1] * height)
        right = max(left + 1, round((box[0] + box[2]) * width))
        bottom = max(top + 1, round((box[1] + box[3]) * height))
        ratio = min(1.0, SIDE / min(right - left, bottom - top))
        wanted = (math.ceil(ratio * (right - left)), math.ceil(ratio * (bottom - top)))
        image = Image.fromarray(picture.pixels((left, top, right, bottom), wanted))
    factor = max(
        min(image.size) // SIDE, math.ceil(math.sqrt(image.width * image.height / REDUCED)), 1
    )
    return image.reduce(factor) if factor > 1 else image


def _is_large(content: bytes, *, boxed: bool) -> bool:
    """Whether decoding needs much memory; raises UnreadablePictureError for what is no picture.
    Of WebP and AVIF opening alone takes room for all pixels, and stops every other thread."""
    if content[8:12] == b"WEBP" or content[4:8] == b"ftyp":
        return True
    with PictureFile(content, MAX_PIXELS, name="(uploaded)") as picture:
        header = picture.header
        cheap = header.format == "JPEG" and not header.info.get("progressive") and not boxed
        return header.width * header.height > SMALL and not cheap


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise EOFError
    return content


def _serve_parent(memory: int) -> None:
    """Decodes what comes until nobody asks any more. Answers: width, height, number of bytes and
    the bytes; width 0 with the reason where there is no picture."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)  # whoever asks for less is answered first
    asked, given = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    while head := asked.read(_ASKED.size):
        *box, size = _ASKED.unpack(head)
        width = height = 0
        try:
            image = reduced(asked.read(size), (box[0], box[1], box[2], box[3]))
            (width, height), answer = image.size, image.tobytes()
        except MemoryError:
            answer = b"it takes too much memory to decode"
        except UnreadablePictureError as error:
            message = "it takes too much memory to decode"
            answer = (
                message if isinstance(error.__cause__, MemoryError) else error.reason
            ).encode()
        given.write(_GIVEN.pack(width, height, len(answer)) + answer)
        given.flush()


if __name__ == "__main__":
    _serve_parent(int(sys.argv[1]))

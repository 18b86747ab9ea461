"""Images from strangers, decoded by child processes with limits of memory and time.

This process reads no more of an upload than the size in its header (`bounds.read_header`). A child
decodes it: within MEMORY bytes, CPU_SECONDS of a processor and SECONDS of a clock; what it does not
manage is refused, and a child that dies is replaced. It imports neither torch nor anything from the
current folder, and stays for the next upload. There are two: one for images that by their header
take little time, and one, of lower priority, for all others.
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
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import unseen
from unseen.core import files
from unseen.data.images.decode import SafeImageFile, UnreadableImageError
from unseen.data.images.header_limits import JPEG_SIGNATURE, check_size, read_header

MAX_PIXELS = 40_000_000
SMALL = 1_000_000  # pixels that are decoded quickly, whatever the format
MAX_PIPED = 4_000_000  # pixels that come back from a child
MEMORY = 500_000_000  # bytes of a child
CPU_SECONDS = 10  # of a child, for one image
SECONDS = 20.0
AT_ONCE = 4  # images that may take long, in work or waiting

Box = tuple[float, float, float, float]  # left, top, width, height, as shares of the image
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
_UPLOAD, _REGION, _ANSWER = struct.Struct("4dq"), struct.Struct("6q"), struct.Struct("qqq")
_NO_BOX = (0, 0, 0, 0)
_UPLOADED = "(uploaded)"
_TOO_LONG, _TOO_LARGE = "it takes too long to decode", "it takes too much memory to decode"
# -P keeps the current folder out of the path; the package may lie there all the same
_START = (
    "import importlib, sys, typing; sys.path.insert(0, sys.argv[1]); import unseen; "
    f"del sys.path[0]; from {__name__} import serve_parent; serve_parent(*map(int, sys.argv[2:]))"
)


class BusyError(Exception):
    """Too many large images at once."""


class RemoteImage:
    """An upload that a child holds open: a `contracts.Image` whose pixels come by a pipe.

    Args:
        process: the child, which has just been sent the upload.
        size: width and height of the upright image, or of the box of it that counts.
    """

    def __init__(self, process: subprocess.Popen[bytes], size: files.Size) -> None:
        self._process, self.size = process, size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pixels(
        self, box: files.Box | None = None, size: files.Size | None = None
    ) -> NDArray[np.uint8]:  # [height, width, 3]
        """A box of the image, perhaps reduced, but not below `size`; they are given once."""
        request = _REGION.pack(*(box or _NO_BOX), *(size or self.size))
        (width, height), content = _ask(self._process, request)
        return np.frombuffer(content, dtype=np.uint8).reshape(height, width, 3)


class Reader:
    """Decodes for a service.

    Args:
        memory: bytes that each child may take.
        seconds: until a child is killed.
        cpu_seconds: of a processor, for one image.

    Example:
        >>> with Reader().opened(Path("photo.jpg").read_bytes()) as image:  # doctest: +SKIP
        ...     image.pixels(size=(224, 224))
    """

    def __init__(
        self, memory: int = MEMORY, seconds: float = SECONDS, cpu_seconds: int = CPU_SECONDS
    ) -> None:
        self._places = threading.Semaphore(AT_ONCE)
        self.quick = _Child(memory, seconds, cpu_seconds)
        self.slow = _Child(memory, seconds, cpu_seconds, niceness=10)

    @contextmanager
    def opened(self, content: bytes, box: Box | None = None) -> Iterator[RemoteImage]:
        """An uploaded file, or the box of it, for as long as its pixels are needed."""
        if _is_quick(content, boxed=box is not None):
            with self.quick.opened(content, box or WHOLE) as image:
                yield image
            return
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            with self.slow.opened(content, box or WHOLE) as image:
                yield image
        finally:
            self._places.release()

    def shown(self, content: bytes, side: int) -> Image.Image:
        """An image of the index, to be looked at; its long side may be reduced to no less."""
        with self.opened(content) as image:
            ratio = min(1.0, side / max(image.size))
            width, height = (math.ceil(ratio * length) for length in image.size)
            return Image.fromarray(image.pixels(size=(width, height)))

    def close(self) -> None:
        """Ends the children; the next upload starts another."""
        self.quick.close()
        self.slow.close()


class _Child:
    """A process that decodes one image at a time; started when it is first needed."""

    def __init__(self, memory: int, seconds: float, cpu_seconds: int, niceness: int = 0) -> None:
        self.seconds, self._limits = seconds, (memory, cpu_seconds, niceness)
        self._one = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def opened(self, content: bytes, box: Box) -> Iterator[RemoteImage]:
        with self._one, self._watched() as process:
            size, _ = _ask(process, _UPLOAD.pack(*box, len(content)), content)
            yield RemoteImage(process, size)

    @contextmanager
    def _watched(self) -> Iterator[subprocess.Popen[bytes]]:
        """Killed when it takes too long, forgotten when anything but the image is wrong."""
        process = self._running()
        callbacks = threading.Timer(self.seconds, process.kill)
        callbacks.daemon = True
        callbacks.start()
        try:
            yield process
        except UnreadableImageError:
            raise
        except (OSError, EOFError) as error:  # it was killed, or died of what it read
            self.close()
            raise UnreadableImageError(_UPLOADED, _TOO_LONG) from error
        except BaseException:
            self.close()
            raise
        finally:
            callbacks.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.close()
            package = str(Path(unseen.__file__).parents[1])
            words = [sys.executable, "-P", "-c", _START, package]
            self.process = subprocess.Popen(
                [*words, *map(str, self._limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # numpy's, each with a stack
            )
            self._end = weakref.finalize(self, _end, self.process)
        return self.process

    def close(self) -> None:
        if self.process is not None:
            self.process = None
            self._end()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe is not None
            pipe.close()
    process.wait()


def _is_quick(content: bytes, *, boxed: bool) -> bool:
    """Whether decoding takes little time: by the size in the header, or because libjpeg reduces
    while it reads. An UnreadableImageError for more than MAX_PIXELS."""
    header = read_header(content)
    if header is None:
        return False
    try:
        check_size(header.size, MAX_PIXELS)
    except ValueError as error:
        raise UnreadableImageError(_UPLOADED, str(error)) from error
    is_reduced = header.is_sequential and content.startswith(JPEG_SIGNATURE) and not boxed
    return is_reduced or header.size[0] * header.size[1] <= SMALL


def _ask(process: subprocess.Popen[bytes], *request: bytes) -> tuple[files.Size, bytearray]:
    """A size, and perhaps pixels; or the reason why there are none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.writelines(request)
    process.stdin.flush()
    width, height, num_bytes = _ANSWER.unpack(_exactly(process.stdout, _ANSWER.size))
    content = _exactly(process.stdout, num_bytes)
    if not width:
        raise UnreadableImageError(_UPLOADED, content.decode())
    return (width, height), content


def _exactly(file: IO[bytes], size: int) -> bytearray:
    content = bytearray(size)
    if file.readinto(content) != size:  # type: ignore[attr-defined]
        raise EOFError
    return content


def serve_parent(memory: int, cpu_seconds: int, niceness: int) -> None:
    """Decodes what comes until nobody asks any more, in a process of its own. Answers: width,
    height, number of bytes and the bytes; width 0 with the reason where there is no image."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))  # all that can be written to
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(niceness)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    while head := requests.read(_UPLOAD.size):
        *box, num_bytes = _UPLOAD.unpack(head)
        content = requests.read(num_bytes)
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        try:
            _answer_region(content, (box[0], box[1], box[2], box[3]), requests, answers)
        except MemoryError:
            _answer(answers, (0, 0), _TOO_LARGE.encode())
        except UnreadableImageError as error:
            is_memory = isinstance(error.__cause__, MemoryError)
            _answer(answers, (0, 0), (_TOO_LARGE if is_memory else error.reason).encode())


def _answer_region(content: bytes, box: Box, requests: IO[bytes], answers: IO[bytes]) -> None:
    """First the size, then the pixels of the part that the parent then asks for."""
    with SafeImageFile(content, MAX_PIXELS) as image:
        width, height = image.size
        left, top = int(box[0] * width), int(box[1] * height)
        right = max(left + 1, round((box[0] + box[2]) * width))
        bottom = max(top + 1, round((box[1] + box[3]) * height))
        _answer(answers, (right - left, bottom - top), b"")
        request = requests.read(_REGION.size)
        if not request:
            return  # who asked has gone
        x1, y1, x2, y2, *wanted = _REGION.unpack(request)
        region: files.Box | None = (left + x1, top + y1, left + x2, top + y2)
        if (x1, y1, x2, y2) == _NO_BOX:
            region = None if box == WHOLE else (left, top, right, bottom)
        pixels = image.pixels(region, (wanted[0], wanted[1]))
    factor = math.ceil(math.sqrt(pixels.shape[0] * pixels.shape[1] / MAX_PIPED))
    if factor > 1:
        pixels = np.asarray(Image.fromarray(pixels).reduce(factor))
    _answer(answers, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def _answer(answers: IO[bytes], size: files.Size, content: bytes) -> None:
    answers.write(_ANSWER.pack(*size, len(content)) + content)
    answers.flush()

"""Files and requests that took the search service down: each is refused, the next one answered."""

import asyncio
import contextlib
import io
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image, ImageFile, PngImagePlugin

from tests.faults.attack_files import LARGE, SMALL, chunk, jpeg_of_scans, written
from tests.search.conftest import images, model, run
from tests.search.service.conftest import index_folder, serving
from tests.search.service.test_siege import children, port_of
from unseen.data.images import decode as decoding
from unseen.data.images.decode import SafeImageFile, UnreadableImageError, check, decode
from unseen.search.service.connections import Connection
from unseen.search.service.decoding import Reader
from unseen.search.service.middleware import AccessControl, Limits

__all__ = ["images", "index_folder", "model", "run"]  # fixtures of the slow test
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


@pytest.mark.parametrize("name", SMALL)
def test_a_file_of_too_many_parts_is_refused(name: str, tmp_path: Path) -> None:
    """Where images are decoded for training and indexing."""
    make, reason = SMALL[name]
    (tmp_path / "attack").write_bytes(make())
    for function in (decode, check):
        with pytest.raises(UnreadableImageError, match=reason):
            function(tmp_path / "attack")
        with pytest.raises(UnreadableImageError, match=reason):
            function(make())


@pytest.mark.parametrize("name", SMALL)
def test_an_upload_of_it_is_refused_by_a_child_that_stays(
    name: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow sees nothing of it in this process."""
    make, reason = SMALL[name]
    content, good = make(), written("JPEG")
    expected = np.asarray(decode(good))
    monkeypatch.setattr(Image, "open", None)
    with pytest.raises(UnreadableImageError, match=reason), reader.opened(content) as image:
        image.pixels()
    with reader.opened(good) as image:
        np.testing.assert_array_equal(image.pixels(), expected)


def test_ordinary_files_of_several_parts_are_read() -> None:
    """Scans of one component each; a film appended to a photograph; rows in strips of their own."""
    assert decode(jpeg_of_scans(3)).size == (64, 48)
    film = bytes(range(256)) * 20 + b"\xff\xda" * 500
    assert decode(written("JPEG") + film).size == (64, 48)
    assert decode(written("JPEG", progressive=True) + film).size == (64, 48)
    file = io.BytesIO()
    Image.new("L", (3, 3000)).save(file, "TIFF", strip_size=1)
    assert decode(file.getvalue()).size == (3, 3000)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_png_tells_its_orientation_before_its_pixels_are_decoded(
    is_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[decoding.ORIENTATION] = 6
    said = chunk(b"eXIf", exif.tobytes()[6:])
    content = written("PNG", (40, 30))
    place = len(content) - 12 if is_last else 33
    turned = content[:place] + said + content[place:]
    assert decode(turned).size == (30, 40)

    loads: list[str] = []
    for kind in (ImageFile.ImageFile, PngImagePlugin.PngImageFile):
        monkeypatch.setattr(kind, "load", lambda image: loads.append(image.format))
    with SafeImageFile(turned) as image:
        assert image.size == (30, 40)
    with SafeImageFile(content) as image:
        assert image.size == (40, 30)
    assert not loads


def test_a_child_has_so_many_bytes_and_seconds_of_a_processor() -> None:
    weak = Reader(memory=400_000_000, cpu_seconds=3)

    def read() -> None:
        """A second upload gets as many seconds again."""
        with weak.opened(written("JPEG")) as image:
            child = weak.quick.process
            assert child is not None
            seconds, _ = resource.prlimit(child.pid, resource.RLIMIT_CPU)
            assert 3 < seconds <= 3 + 60
            assert resource.prlimit(child.pid, resource.RLIMIT_DATA) == (400_000_000,) * 2
            if child.pid in pids:
                child.send_signal(signal.SIGXCPU)  # as the system does when they are over
            pids.add(child.pid)
            image.pixels()

    pids: set[int] = set()
    read()
    with pytest.raises(UnreadableImageError, match="too long"):
        read()
    read()
    assert len(pids) == 2
    weak.close()


def test_a_child_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("simplejpeg", "PIL", "numpy", "typing", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')")
    monkeypatch.chdir(tmp_path)
    fresh = Reader()
    with fresh.opened(written("JPEG")) as image:
        assert image.size == (64, 48)
    fresh.close()


# Uploads that do not end.

HEAD = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"


class Narrow(Connection):
    most = 30
    most_per_address = 20
    much_arrived = threading.Event()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._received > 1_500_000:
            self.much_arrived.set()


async def count(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes."""
    if scope["type"] == "lifespan":
        return
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


def connect(url: str, last: int, content: bytes) -> socket.socket:
    place = urlsplit(url)
    made = socket.create_connection(
        (place.hostname, place.port), timeout=10, source_address=(f"127.0.0.{last}", 0)
    )
    with contextlib.suppress(OSError):
        made.sendall(content)
    return made


def test_uploads_of_one_byte_give_way() -> None:
    """As many as there are places, from addresses that each hold fewer than they may."""
    access_control = AccessControl(count, Limits(per_minute=0))
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving(access_control, http=Narrow))
        own = stack.enter_context(connect(url, 9, HEAD % 2_000_000 + bytes(1_900_000)))
        assert Narrow.much_arrived.wait(60)  # what is sent may still lie in the kernel's buffers
        for number in range(3 * Narrow.most):
            stack.enter_context(connect(url, 2 + number % 5, HEAD % 1000 + b"x"))
        for _ in range(3):
            assert httpx.post(url, content=b"four", timeout=5).text == "4"
        own.sendall(bytes(100_000))  # it had sent more than all others
        message = b""
        while b"2000000" not in message:
            part = own.recv(4096)
            assert part, "it was cut off"
            message += part


def test_unfinished_uploads_give_their_bytes_to_others() -> None:
    """The one that has held most for longest is given up, and told so."""

    async def all_of_them() -> tuple[int, ...]:
        access_control = AccessControl(count, Limits(hosts=None, per_minute=0, max_buffered=1000))

        async def sent(sizes: list[int], end: asyncio.Event | None = None) -> int:
            said: list[int] = []
            parts = [bytes(size) for size in sizes]

            async def receive() -> Any:
                if not parts and end is not None:
                    await end.wait()
                part = parts.pop(0) if parts else b""
                return {"type": "http.request", "body": part, "more_body": bool(parts or end)}

            async def send(message: Any) -> None:
                said.append(message.get("status", 0))

            scope = {"type": "http", "method": "POST", "path": "/", "query_string": b""}
            await access_control(scope | {"headers": [], "client": ("?", 1)}, receive, send)
            return said[0]

        forever = asyncio.Event()
        slow = asyncio.create_task(sent([900], forever))
        await asyncio.sleep(0.01)
        small = asyncio.create_task(sent([10], forever))
        await asyncio.sleep(0.01)
        whole = await sent([300, 300])
        assert access_control.buffered == 10
        alone = await sent([990, 10, 1])  # it is too much whoever gives way
        said = await slow, whole, await small, alone
        assert access_control.buffered == 0
        return said

    assert asyncio.run(all_of_them()) == (503, 200, 503, 503)


def test_half_an_upload_is_not_handed_on() -> None:
    async def gone() -> list[int]:
        said: list[int] = []
        messages = [{"type": "http.request", "body": b"half", "more_body": True}]

        async def receive() -> Any:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            said.append(message.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        await AccessControl(count, Limits(hosts=None))(scope, receive, send)
        return said

    assert asyncio.run(gone())[0] == 400


# All of it at full size, against `unseen serve`.


def resident(process: int) -> int:
    """Megabytes that a process and its children hold now."""
    held = 0
    for each in [str(process), *children(process)]:
        with contextlib.suppress(OSError, IndexError):
            text = Path(f"/proc/{each}/status").read_text()
            held += int(text.split("VmRSS:")[1].split()[0]) // 1024
    return held


def attack(url: str, which: int, files: list[bytes], message: list[int]) -> None:
    """Sends each of the files from an address of its own."""
    transport = httpx.HTTPTransport(local_address=f"127.0.0.{2 + which % 8}")
    with httpx.Client(transport=transport, timeout=120) as client:
        for turn in range(len(files)):
            with contextlib.suppress(httpx.TransportError):
                content = files[(which + turn) % len(files)]
                message.append(client.post(f"{url}/api/search", content=content).status_code)


def unfinished(url: str, stack: contextlib.ExitStack) -> None:
    for number in range(564):
        with contextlib.suppress(OSError):
            stack.enter_context(connect(url, 20 + number % 12, HEAD % 1000 + b"x"))


@pytest.mark.slow
def test_attacks_at_full_size_keep_nobody_waiting(
    index_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two searches by an image and one by an id, by connections of their own, again and again."""
    files, own = [make() for make in LARGE.values()], [written("JPEG"), written("PNG")]
    words = [sys.executable, "-m", "unseen", "serve", str(index_folder), "--port", "0"]
    message: list[int] = []
    waits: list[tuple[int, float]] = []
    most = 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        stack.callback(server.kill)
        url = f"http://127.0.0.1:{port_of(server.pid)}"
        for content in own:
            assert httpx.post(f"{url}/api/search", content=content, timeout=60).status_code == 200
        unfinished(url, stack)
        attackers = [
            threading.Thread(target=attack, args=(url, which, files, message))
            for which in range(16)
        ]
        for attacker in attackers:
            attacker.start()
        while any(attacker.is_alive() for attacker in attackers):
            for content in (*own, None):
                began = time.monotonic()
                if content is None:
                    response = httpx.get(f"{url}/api/search/1", timeout=60)
                else:
                    response = httpx.post(f"{url}/api/search", content=content, timeout=60)
                waits.append((response.status_code, time.monotonic() - began))
                most = max(most, resident(server.pid))
                time.sleep(0.05)
    seconds = sorted(took for _, took in waits)
    counts = json.dumps({status: message.count(status) for status in sorted(set(message))})
    with capsys.disabled():
        print(f"\nattackers were told {counts}; {len(waits)} other searches, median ", end="")
        print(f"{seconds[len(waits) // 2]:.3f} s, most {seconds[-1]:.3f} s; at most {most} MB")
    assert set(message) <= {400, 413, 429, 503, 200}
    assert {status for status, _ in waits} == {200}
    assert seconds[-1] < 2
    assert most < 1500

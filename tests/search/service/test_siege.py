"""Many connections that mean harm, from addresses of this machine; one with a token asks meanwhile.

The full ten thousand requests over 300 connections, against `unseen serve` in a process whose
memory is watched, run under `make test-slow`; every run sends a sample to a server of its own.
"""

import asyncio
import contextlib
import io
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.search.service.conftest import HOSTS, made_index, serving
from unseen.runs.trained_run import Trained
from unseen.search.service.app import create_app
from unseen.search.service.connections import Connection
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits

TOKEN = "a-secret-word"
NUMBER = 10_000
LARGE = bytes(21_000_000)
SILENT = [b"", b"POST /api/search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le"]


def bomb(pixels: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (pixels // 2000, 2000), "navy").save(file, "WEBP", quality=1, method=0)
    return file.getvalue()


def request(method: str, path: str, body: bytes = b"", token: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    head += f"authorization: Bearer {token}\r\n" if token else ""
    return head.encode() + b"\r\n" + body


def hostile(r: random.Random, image: bytes) -> bytes:
    """What a stranger sends."""
    kinds: list[Callable[[], bytes]] = [
        lambda: request("GET", "/"),
        lambda: request("GET", "/api/images/1"),
        lambda: request("POST", "/api/search", image),
        lambda: request("GET", f"/?token=guess-{r.random()}"),
        lambda: request("GET", "/" + "../" * 30 + "etc/passwd"),
        lambda: request("POST", "/api/search", r.randbytes(3000), f"guess-{r.random()}"),
        lambda: b"\x16\x03\x01" + r.randbytes(500),
        lambda: b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        lambda: request("POST", "/api/search", LARGE),
    ]
    return r.choice(kinds)()


async def siege(url: str, number: int, connections: int, pixels: int) -> None:
    """Of eight addresses one keeps silent, and one knows the token and sends much to decode."""
    place, turns, image = urlsplit(url), itertools.count(), bomb(pixels)

    def content(which: int, r: random.Random) -> bytes:
        if which % 8 == 0:
            return r.choice(SILENT)
        if which % 8 == 1:
            return request("POST", "/api/search", image, TOKEN)
        return hostile(r, image)

    async def attacker(which: int) -> None:
        r = random.Random(which)
        while next(turns) < number:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(
                    place.hostname, place.port, local_addr=(f"127.0.0.{2 + which % 8}", 0)
                )
                with contextlib.closing(writer):
                    writer.write(content(which, r))
                    await asyncio.wait_for(reader.read(2000), 20)

    await asyncio.gather(*(attacker(which) for which in range(connections)))


# Asks with the token, in a process of its own, until its input ends; says status and seconds.
HOLDER = """
import select, sys, time, urllib.request
url, token = sys.argv[1:]
while not select.select([sys.stdin], [], [], 0.05)[0]:
    for path in ("/api/health", "/api/search/1", "/api/images/2"):
        asked = urllib.request.Request(url + path, headers={"authorization": "Bearer " + token})
        began = time.monotonic()
        with urllib.request.urlopen(asked, timeout=30) as response:
            response.read()
        print(response.status, time.monotonic() - began, flush=True)
"""


def besieged(url: str, **how: int) -> list[tuple[int, float]]:
    """Status and seconds of what the holder of the token asked meanwhile, from 127.0.0.1."""
    words = [sys.executable, "-c", HOLDER, url, TOKEN]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        asyncio.run(siege(url, **how))
        message, _ = holder.communicate()
        assert holder.returncode == 0  # every answer was one
    return [(int(line.split()[0]), float(line.split()[1])) for line in message.splitlines()]


class Quick(Connection):
    header_seconds = 0.5


def test_a_token_holder_is_answered_under_siege(registry: IndexRegistry) -> None:
    limits = Limits(hosts=HOSTS, token=TOKEN)
    with serving(create_app(registry, None, limits), http=Quick) as url:
        message = besieged(url, number=150, connections=40, pixels=2_000_000)
    assert {status for status, _ in message} == {200}


def memory(process: int) -> int:
    """Most megabytes that a process and its children held, as the system remembers."""
    held = 0
    for each in [str(process), *children(process)]:
        with contextlib.suppress(FileNotFoundError, IndexError):
            text = Path(f"/proc/{each}/status").read_text()
            held += int(text.split("VmHWM:")[1].split()[0]) // 1024
    return held


def children(process: int) -> list[str]:
    """Whichever thread started them."""
    result: list[str] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            result += (thread / "children").read_text().split()
    return result


@pytest.mark.slow
def test_ten_thousand_hostile_requests_over_300_connections(
    model: Trained, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = made_index(tmp_path / "own.index", model, images)  # other tests take images out of theirs
    words = [sys.executable, "-m", "unseen", "serve", str(own), "--port", "0"]
    with subprocess.Popen([*words, "--token", TOKEN], stdout=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port_of(server.pid)}"
            begun = memory(server.pid)
            message = besieged(url, number=NUMBER, connections=300, pixels=16_000_000)
            most = memory(server.pid)
        finally:
            server.kill()
    seconds = sorted(took for _, took in message)
    with capsys.disabled():
        print(f"\n{len(message)} answers, median {seconds[len(message) // 2]:.3f} s, ", end="")
        print(f"99 % {seconds[int(0.99 * len(message))]:.3f} s, most {seconds[-1]:.3f} s; ", end="")
        print(f"{begun} MB before, at most {most} MB")
    assert {status for status, _ in message} == {200}
    assert most < 1500


def port_of(process: int) -> int:
    """Where a process listens, once it does."""
    while True:
        time.sleep(0.2)
        mine = set()
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                mine.add(str(link.readlink()))
        for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                return int(fields[1].partition(":")[2], 16)

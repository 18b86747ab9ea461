"""Hostile requests over a real connection: nothing outside the index, and it still answers.

The full 5,000 run under `make test-slow`; every run sends a sample. All go to this machine alone.
"""

import io
import random
import resource
import socket
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from PIL import Image

ESCAPES = ["../", "..%2f", "%2e%2e/", "..\\", "%c0%ae%c0%ae/", "....//", "/", "%00", "file:///"]
TARGETS = ["etc/passwd", "proc/self/environ", "manifest.json", "app.py", "weights.safetensors"]
SECRETS = (b"root:x:", b"UNSEEN", b'"fingerprint": "', b"import ")


def traversal(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    way = r.choice(ESCAPES) * r.randint(1, 9) + r.choice(TARGETS)
    root = r.choice(
        ["/", "/static/", "/api/pictures/", "/api/search/", "/docs/", "/other/api/pictures/"]
    )
    return "GET", root + way + r.choice(["", "/thumbnail", "?k=1"]), b"", {}


def wrong_words(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    value = r.choice(["-1", "1e9", "%00", "' OR 1=1", "x" * 3000, "NaN", "[]", "9" * 400, "\u202e"])
    key = r.choice(["k", "label", "box", "start", "count", "token"])
    return "GET", f"/api/search/{r.choice(['1', value])}?{key}={value}", b"", {}


def damaged_picture(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    written = io.BytesIO()
    form = r.choice(["JPEG", "PNG", "GIF", "WEBP", "BMP"])
    Image.new("RGB", (40, 30), (r.randrange(256), 0, 0)).save(written, form)
    content = bytearray(written.getvalue())
    for _ in range(r.randint(1, 20)):
        content[r.randrange(len(content))] = r.randrange(256)
    return "POST", "/api/search", bytes(content[: r.randint(0, len(content))]), {}


def bomb(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """A PNG that claims 50,000 x 50,000 pixels."""
    header = (50_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    chunk = b"IHDR" + header
    content = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + chunk
    content += zlib.crc32(chunk).to_bytes(4, "big") + r.randbytes(50)
    return "POST", "/api/search?k=5", content, {}


def too_large(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    return "POST", "/api/search", b"\xff\xd8" + bytes(2_000_001), {}


def wrong_type(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    body = b"[" * r.randint(1, 50_000)  # deep JSON, where none is read
    kind = r.choice(["application/json", "multipart/form-data", "text/xml", "\xe9".encode().hex()])
    method = r.choice(["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    path = r.choice(["/api/search", "/api/index", "/", "/openapi.json", "/api/map"])
    return method, path, body, {"content-type": kind}


def odd_headers(r: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    value = "".join(chr(r.randint(33, 126)) for _ in range(r.randint(1, 4000)))
    name = r.choice(["host", "cookie", "authorization", "range", "if-none-match", "accept", "te"])
    return "GET", "/api/health", b"", {name: value}


KINDS: list[Callable[[random.Random], tuple[str, str, bytes, dict[str, str]]]] = [
    traversal,
    wrong_words,
    damaged_picture,
    bomb,
    too_large,
    wrong_type,
    odd_headers,
]


@pytest.mark.parametrize("number", [210, pytest.param(5000, marks=pytest.mark.slow)])
def test_nothing_gets_in_or_out(address: str, number: int, pictures: Path) -> None:
    r = random.Random(number)
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with httpx.Client(base_url=address, timeout=20) as client:
        for turn in range(number):
            method, path, body, headers = KINDS[turn % len(KINDS)](r)
            try:
                url = httpx.URL(address).copy_with(raw_path=path.encode("utf-8", "replace"))
                response = client.request(method, url, content=body, headers=headers)
            except httpx.TransportError:
                continue  # cut off by the server, or never sent by the client
            except (httpx.InvalidURL, UnicodeError, ValueError):
                continue
            assert response.status_code != 500, (method, path[:200])
            assert response.status_code < 500 or response.status_code == 503
            outside = response.headers.get("content-type", "").startswith("application/json")
            served = path.startswith(("/static/", "/docs", "/openapi"))
            if not served or outside:
                assert not any(secret in response.content for secret in SECRETS), path[:200]
        assert client.get("/api/health").json()["pictures"] == 30
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun) / 1024
    assert grown < 400  # megabytes


def test_slow_and_silent_connections_end(address: str) -> None:
    """Half a request, then nothing: others are answered meanwhile, and it is ended."""
    place = urlsplit(address)
    half = b"POST /api/search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\nhalf"
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=20))
            for _ in range(10)
        ]
        for connection in silent:
            connection.sendall(half)
        assert httpx.get(f"{address}/api/health", timeout=10).status_code == 200
        answers = [connection.recv(4096)[:12] for connection in silent]
    assert answers == [b"HTTP/1.1 408"] * 10


@pytest.mark.parametrize("number", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_every_route_keeps_to_its_description(address: str, number: int) -> None:
    """Schemathesis makes requests from openapi.json and compares the answers with it."""
    import schemathesis  # here: collecting tests does without it

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    allowed = (200, 202, 400, 401, 404, 405, 408, 413, 422, 429, 503)
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=number,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def keeps(case: schemathesis.Case) -> None:
            assert case.call(timeout=20).status_code in allowed

        keeps()

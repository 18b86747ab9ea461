"""Hostile requests, one kind each, and many of them at once against a server of its own process.

    python -m tests.faults.hostile INDEX 10000 300      requests, connections

The server is `unseen serve` with a token; the attackers sit on ten other addresses of this machine,
and every other one knows the token. Somebody else with the token asks all the while. Prints what
they were told, how long that one waited, and the most memory the server held.
"""

import asyncio
import io
import json
import multiprocessing
import random
import resource
import socket
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

Request = tuple[str, str, bytes, dict[str, str]]  # method, path, body, headers
Kind = Callable[[random.Random], Request]

TOKEN = "a-secret-word-of-tests"
HOLDS = {"authorization": f"Bearer {TOKEN}"}
RARE = 50  # of so many requests one has a large image
URIS = [f"127.0.0.{number}" for number in range(2, 12)]
ESCAPES = ["../", "..%2f", "%2e%2e/", "..\\", "%c0%ae%c0%ae/", "....//", "/", "%00", "file:///"]
TARGETS = ["etc/passwd", "proc/self/environ", "manifest.json", "app.py", "weights.safetensors"]
SECRETS = (b"root:x:", b"UNSEEN", b'"fingerprint": "', b"import ")


def traversal(r: random.Random) -> Request:
    way = r.choice(ESCAPES) * r.randint(1, 9) + r.choice(TARGETS)
    root = r.choice(
        ["/", "/static/", "/api/images/", "/api/search/", "/docs/", "/other/api/images/"]
    )
    return "GET", root + way + r.choice(["", "/thumbnail", "?k=1"]), b"", {}


def wrong_words(r: random.Random) -> Request:
    value = r.choice(["-1", "1e9", "%00", "' OR 1=1", "x" * 3000, "NaN", "[]", "9" * 400, "\u202e"])
    key = r.choice(["k", "label", "box", "start", "count", "token", "right", "wrong", "seed", "q"])
    path = r.choice([f"search/{r.choice(['1', value])}?", "search?ids=1&", "images?", "labels?"])
    return "GET", f"/api/{path}{key}={value}", b"", {}


def damaged_image(r: random.Random) -> Request:
    written = io.BytesIO()
    form = r.choice(["JPEG", "PNG", "GIF", "WEBP", "BMP"])
    Image.new("RGB", (40, 30), (r.randrange(256), 0, 0)).save(written, form)
    content = bytearray(written.getvalue())
    for _ in range(r.randint(1, 20)):
        content[r.randrange(len(content))] = r.randrange(256)
    return "POST", "/api/search", bytes(content[: r.randint(0, len(content))]), {}


def bomb(r: random.Random) -> Request:
    """A PNG that claims 50,000 x 50,000 pixels."""
    header = (50_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    chunk = b"IHDR" + header
    content = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + chunk
    content += zlib.crc32(chunk).to_bytes(4, "big") + r.randbytes(50)
    return "POST", "/api/search?k=5", content, {}


def too_large(r: random.Random) -> Request:
    return "POST", "/api/search", b"\xff\xd8" + bytes(2_000_001), {}


def wrong_type(r: random.Random) -> Request:
    body = b"[" * r.randint(1, 50_000)  # deep JSON, where none is read
    kind = r.choice(["application/json", "multipart/form-data", "text/xml", "\xe9".encode().hex()])
    method = r.choice(["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    path = r.choice(["/api/search", "/api/index", "/", "/openapi.json", "/api/map"])
    return method, path, body, {"content-type": kind}


def odd_form(r: random.Random) -> Request:
    """Parts without end, without names, with names of other files."""
    parts = [
        f'--x\r\ncontent-disposition: form-data; name="{r.choice(["file", "", "k"])}"'
        f"{r.choice(['', '; filename=../../etc/passwd', '; filename='])}\r\n\r\n"
        for _ in range(r.choice([1, 9, 300]))
    ]
    body = "".join(parts).encode() + r.randbytes(r.randint(0, 999)) + r.choice([b"", b"\r\n--x--"])
    return "POST", "/api/search", body, {"content-type": "multipart/form-data; boundary=x"}


def wrong_order(r: random.Random) -> Request:
    """Of images that are not there, or everything at once."""
    ids = r.choice([[-1], [2**80], ["1"], list(range(5000)), None, [[1]]])
    label = r.choice(["", "\x00", "x" * 600, None, {}, "../../etc"])
    body = json.dumps({"ids": ids, "label": label}).encode()
    path = r.choice(
        ["/api/label", "/api/remove", "/api/export.zip?ids=1-999999", "/api/export.csv"]
    )
    return r.choice(["POST", "GET"]), path, body, {"content-type": "application/json"}


def odd_headers(r: random.Random) -> Request:
    value = "".join(chr(r.randint(33, 126)) for _ in range(r.randint(1, 4000)))
    name = r.choice(["host", "cookie", "authorization", "range", "if-none-match", "accept", "te"])
    return "GET", "/api/health", b"", {name: value}


KINDS: list[Kind] = [
    traversal,
    wrong_words,
    damaged_image,
    bomb,
    too_large,
    wrong_type,
    odd_form,
    wrong_order,
    odd_headers,
]


@cache
def _large_image() -> bytes:
    written = io.BytesIO()
    Image.new("L", (9000, 9000), 200).convert("RGB").save(written, "WEBP", quality=1)
    return written.getvalue()


def small_bytes_large_image(r: random.Random) -> Request:
    return "POST", "/api/search?k=5", _large_image(), {}


def may_be_message(path: str, response: httpx.Response) -> bool:
    """Whether an answer keeps to what a stranger may learn."""
    custom_components = response.headers.get("content-type", "").startswith("application/json")
    served = path.startswith(("/static/", "/docs", "/openapi"))
    return (served and not custom_components) or not any(
        secret in response.content for secret in SECRETS
    )


async def attack(url: str, requests: int, connections: int) -> dict[str, int]:
    """What so many requests from so many connections were told."""
    counts: Counter[str] = Counter()
    turns = iter(range(requests))
    _large_image()  # made before anybody is measured

    async def attacker(number: int) -> None:
        r = random.Random(number)
        source = URIS[number % len(URIS)]
        known = HOLDS if number % 2 else {}
        async with _client(url, source) as client:
            for turn in turns:
                kind = small_bytes_large_image if turn % RARE == 0 else KINDS[turn % len(KINDS)]
                method, path, body, headers = kind(r)
                counts[await _message(client, url, method, path, body, known | headers)] += 1

    await asyncio.gather(*(attacker(number) for number in range(connections)))
    return dict(sorted(counts.items()))


def ask(url: str, over: Any, message: Any) -> None:
    """Somebody with a token, in a process of their own: statuses, and how long each took."""
    small = io.BytesIO()
    Image.new("RGB", (40, 30), (9, 200, 30)).save(small, "PNG")
    counts: Counter[int] = Counter()
    waits = []
    with httpx.Client(base_url=url, timeout=60, headers=HOLDS) as client:
        while not over.wait(0.2):
            began = time.monotonic()
            counts[client.post("/api/search?k=3", content=small.getvalue()).status_code] += 1
            waits.append(time.monotonic() - began)
    waits.sort()
    result = {"median": waits[len(waits) // 2], "p95": waits[int(0.95 * len(waits))]}
    seconds = {name: round(value, 3) for name, value in (result | {"max": waits[-1]}).items()}
    message.put({"holder is told": dict(counts), "holder waits, seconds": seconds})


def _client(url: str, source: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=1)
    transport = httpx.AsyncHTTPTransport(local_address=source, limits=limits)
    return httpx.AsyncClient(transport=transport, base_url=url, timeout=60)


async def _message(
    client: httpx.AsyncClient, url: str, method: str, path: str, body: bytes, headers: Any
) -> str:
    try:
        request = httpx.URL(url).copy_with(raw_path=path.encode("utf-8", "replace"))
        answer = await client.request(method, request, content=body, headers=headers)
    except httpx.TransportError:
        return "cut off"
    except (httpx.InvalidURL, UnicodeError, ValueError):
        return "not sent"
    return str(answer.status_code) if may_be_message(path, answer) else "told a secret"


def served_and_attacked(index: Path, requests: int, connections: int) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", str(index), "--port", str(port), "--token", TOKEN, "--per-minute", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "unseen", *words], stdout=subprocess.PIPE
    ) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url)
            here = multiprocessing.get_context("fork")
            over, message = here.Event(), here.Queue()
            holder = here.Process(target=ask, args=(url, over, message))
            holder.start()
            result = {"answers": asyncio.run(attack(url, requests, connections))}
            over.set()
            result |= message.get()
            holder.join()
            status = Path(f"/proc/{server.pid}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            return result | {"server peak, MB": int(peak.split()[1]) // 1024}
        finally:
            server.terminate()


def _wait_for(url: str) -> None:
    for _ in range(600):
        try:
            httpx.get(f"{url}/api/health", headers=HOLDS)
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError("the server did not start")


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    print(json.dumps(served_and_attacked(Path(sys.argv[1]), *map(int, sys.argv[2:4])), indent=1))

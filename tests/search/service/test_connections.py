"""Connections that send nothing, little or read nothing, from one address of this machine; somebody
with a token asks from another."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.search.service.conftest import serving
from unseen.search.service.connections import Connection
from unseen.search.service.middleware import AccessControl, Limits

ATTACKER, HOLDER = "127.0.0.2", "127.0.0.1"
TOKEN = "a-secret-word"
HALF = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "
WHOLE = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer a-secret-word\r\n\r\n"


class Quick(Connection):
    header_seconds = 0.4
    read_seconds = 0.4
    most = 30
    most_per_address = 20


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Much to read at /large, a word elsewhere."""
    if scope["type"] == "lifespan":
        return
    body = bytes(20_000_000) if scope["path"] == "/large" else b"here"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def access_control() -> AccessControl:
    return AccessControl(large, Limits(token=TOKEN, per_minute=0, at_once=4))


@pytest.fixture
def url(access_control: AccessControl) -> Iterator[str]:
    with serving(access_control, http=Quick) as address:
        yield address


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., socket.socket]]:
    """Opens a connection from an address of this machine, and sends something."""
    place = urlsplit(url)
    with ExitStack() as stack:

        def opened(content: bytes = b"", source: str = ATTACKER) -> socket.socket:
            made = socket.create_connection(
                (place.hostname, place.port), timeout=10, source_address=(source, 0)
            )
            stack.enter_context(made)
            with contextlib.suppress(OSError):
                made.sendall(content)
            return made

        yield opened


def answer(url: str, source: str = HOLDER) -> int:
    """The status somebody with a token gets."""
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=5) as client:
        return client.get(url, headers={"authorization": f"Bearer {TOKEN}"}).status_code


def ended(connection: socket.socket) -> bool:
    """Waits until the other side closes; nothing may come before."""
    try:
        return connection.recv(10) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("content", [b"", HALF])
def test_silent_and_unfinished_connections_end_and_keep_nobody_out(
    content: bytes, url: str, connect: Callable[..., socket.socket]
) -> None:
    attackers = [connect(content, f"127.0.0.{2 + number % 3}") for number in range(40)]
    assert answer(url) == 200
    assert all(ended(attacker) for attacker in attackers)


def test_a_letter_now_and_then_does_not_help(connect: Callable[..., socket.socket]) -> None:
    slow = connect(HALF)

    def letters() -> None:
        for _ in range(200):
            slow.sendall(b"x")
            time.sleep(0.02)

    with pytest.raises(OSError, match=r"reset|Broken"):
        letters()


def test_nor_does_it_after_a_whole_request(connect: Callable[..., socket.socket]) -> None:
    slow = connect(WHOLE)
    message = b""
    while not message.endswith(b"here\r\n0\r\n\r\n"):
        message += slow.recv(4096)
    slow.sendall(HALF)
    assert ended(slow)


def test_one_address_holds_so_many_connections(
    url: str, connect: Callable[..., socket.socket]
) -> None:
    attackers = [connect(HALF) for _ in range(Quick.most_per_address + 3)]
    assert all(ended(late) for late in attackers[Quick.most_per_address :])
    attackers[0].sendall(b"in time\r\n\r\n")
    assert attackers[0].recv(100).startswith(b"HTTP/1.1 401")
    assert answer(url) == 200


def test_answers_that_nobody_reads_are_given_up(
    url: str, connect: Callable[..., socket.socket]
) -> None:
    attackers = [connect(WHOLE.replace(b"GET /", b"GET /large")) for _ in range(6)]
    assert answer(url) == 200
    time.sleep(2 * Quick.read_seconds)
    for attacker in attackers:
        size = 0
        with contextlib.suppress(ConnectionResetError):
            while part := attacker.recv(1 << 20):
                size += len(part)
        assert size < 20_000_000


def test_a_forwarded_address_is_believed_of_a_named_proxy_only() -> None:
    async def who(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["client"][0].encode()})

    for proxies, believed in [
        ({}, 2),
        ({"proxy_headers": True, "forwarded_allow_ips": [HOLDER]}, 6),
    ]:
        access_control = AccessControl(who, Limits(per_minute=2))
        with serving(access_control, **proxies, lifespan="off") as url:
            message = [
                httpx.get(url, headers={"x-forwarded-for": f"10.0.0.{turn}"}).status_code
                for turn in range(6)
            ]
        assert message.count(200) == believed


def test_processes_count_together(tmp_path: Any) -> None:
    from unseen.search.service.rate_limiter import RateLimiter

    file = RateLimiter.create(tmp_path / "rate_limiter")
    several = [
        AccessControl(large, Limits(hosts=None, per_minute=4), RateLimiter(file)) for _ in range(3)
    ]

    async def request(access_control: AccessControl) -> int:
        said: list[int] = []

        async def send(message: Any) -> None:
            said.append(message.get("status", 0))

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        await access_control({**scope, "client": ("10.0.0.9", 1)}, receive, send)
        return said[0]

    said = [asyncio.run(request(several[turn % 3])) for turn in range(8)]
    assert said == [200] * 4 + [429] * 4


class Patient(Connection):
    last_seconds = 60.0


def test_who_has_just_connected_is_answered_by_a_process_that_ends(
    access_control: AccessControl,
) -> None:
    service = serving(access_control, http=Patient)
    with service as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as asking:
            httpx.get(url, headers={"authorization": f"Bearer {TOKEN}"})  # both are accepted now
            service.server.should_exit = True
            while any(listening.is_serving() for listening in service.server.servers):
                time.sleep(0.01)
            asking.sendall(WHOLE)
            assert asking.recv(100).startswith(b"HTTP/1.1 200")

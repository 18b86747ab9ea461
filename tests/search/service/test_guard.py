"""Who may ask, how much, how often."""

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from unseen.search.service.guard import HEADERS, Guard, Limits


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes of the body."""
    if scope["type"] == "lifespan":
        return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def client(**limits: Any) -> TestClient:
    return TestClient(Guard(echo, Limits(**({"hosts": None} | limits))))


def test_every_answer_has_the_headers_of_a_careful_site() -> None:
    for response in (client().get("/"), client(max_bytes=1).post("/", content=b"much")):
        assert {name: response.headers[name] for name in HEADERS} == HEADERS


def test_names_that_are_not_ours() -> None:
    asked = client(hosts=("localhost", "::1"))
    for host, status in [
        ("localhost:8000", 200),
        ("[::1]:80", 200),
        ("evil.example", 400),
        ("", 400),
    ]:
        assert asked.get("/", headers={"host": host}).status_code == status, host


def test_other_sites_may_not_send() -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert client().post("/", headers=headers).status_code == 403
    assert client().post("/", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_body_that_is_too_large_is_refused_said_or_not() -> None:
    asked = client(max_bytes=100)
    assert asked.post("/", content=b"x" * 100).text == "100"
    assert asked.post("/", content=b"x" * 101).status_code == 413
    parts = (b"x" * 40 for _ in range(5))  # no length said beforehand
    assert asked.post("/", content=parts).status_code == 413
    assert asked.post("/", headers={"content-length": "-5"}).status_code == 413


def test_a_token_by_header_address_or_cookie() -> None:
    asked = client(token="secret word")
    assert asked.get("/").status_code == 401
    assert asked.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert asked.get("/", headers={"authorization": "Bearer secret word"}).status_code == 200
    assert asked.get("/", headers={"cookie": 'unseen="secret word"'}).status_code == 200
    assert asked.get("/", headers={"cookie": "a=\x01; =="}).status_code == 401
    moved = asked.get("/?token=secret%20word", follow_redirects=False)
    assert moved.status_code == 303
    assert "HttpOnly" in moved.headers["set-cookie"]
    assert "SameSite=Strict" in moved.headers["set-cookie"]


def test_so_many_requests_a_minute() -> None:
    asked = client(per_minute=3)
    assert [asked.get("/").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert asked.get("/").headers["retry-after"] == "2"


async def called(guard: Guard, receive: Any) -> int:
    """The status of a request whose body comes from `receive`."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    await guard(scope, receive, send)
    return int(sent[0]["status"])


def test_a_body_that_does_not_come_ends() -> None:
    async def never() -> Any:
        await asyncio.sleep(60)

    guard = Guard(echo, Limits(hosts=None, seconds=0.05))
    assert asyncio.run(called(guard, never)) == 408
    assert guard.running == 0


def test_so_many_at_once() -> None:
    async def all_of_them() -> list[int]:
        go = asyncio.Event()

        async def waits() -> Any:
            await go.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        guard = Guard(echo, Limits(hosts=None, at_once=2, per_minute=0))
        asked = [asyncio.create_task(called(guard, waits)) for _ in range(5)]
        await asyncio.sleep(0.05)
        go.set()
        return list(await asyncio.gather(*asked))

    assert sorted(asyncio.run(all_of_them())) == [200, 200, 503, 503, 503]


@pytest.mark.parametrize("path", ["/", "/deep/er"])
def test_the_log_names_no_client_and_no_words(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unseen.serve"):
        client().get(f"{path}?label=secret", headers={"cookie": "x=private"})
    told = " ".join(
        record.getMessage() for record in caplog.records if record.name == "unseen.serve"
    )
    assert "GET" in told
    assert not any(word in told for word in ("secret", "private", "testclient"))

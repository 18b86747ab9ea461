"""Who may ask, how much, how often."""

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from unseen.search.service.middleware import HEADERS, AccessControl, Limits


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
    return TestClient(AccessControl(echo, Limits(**({"hosts": None} | limits))))


def test_every_answer_has_the_headers_of_a_careful_site() -> None:
    for response in (client().get("/"), client(max_bytes=1).post("/", content=b"much")):
        assert {name: response.headers[name] for name in HEADERS} == HEADERS


def test_names_that_are_not_ours() -> None:
    request = client(hosts=("localhost", "::1"))
    for host, status in [
        ("localhost:8000", 200),
        ("[::1]:80", 200),
        ("evil.example", 400),
        ("", 400),
    ]:
        assert request.get("/", headers={"host": host}).status_code == status, host


def test_other_sites_may_not_send() -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert client().post("/", headers=headers).status_code == 403
    assert client().post("/", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_body_that_is_too_large_is_refused_said_or_not() -> None:
    request = client(max_bytes=100)
    assert request.post("/", content=b"x" * 100).text == "100"
    assert request.post("/", content=b"x" * 101).status_code == 413
    parts = (b"x" * 40 for _ in range(5))  # no length said beforehand
    assert request.post("/", content=parts).status_code == 413
    assert request.post("/", headers={"content-length": "-5"}).status_code == 413


def test_a_token_by_header_address_or_cookie() -> None:
    request = client(token="a-secret-word")
    assert request.get("/").status_code == 401
    assert request.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert request.get("/", headers={"authorization": "Bearer a-secret-word"}).status_code == 200
    assert request.get("/", headers={"cookie": 'unseen="a-secret-word"'}).status_code == 200
    assert request.get("/", headers={"cookie": "a=\x01; =="}).status_code == 401
    moved = request.get("/?token=a%2Dsecret-word", follow_redirects=False)
    assert moved.status_code == 303
    assert "HttpOnly" in moved.headers["set-cookie"]
    assert "SameSite=Strict" in moved.headers["set-cookie"]


def test_so_many_requests_a_minute() -> None:
    request = client(per_minute=3)
    assert [request.get("/").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert request.get("/").headers["retry-after"] == "2"


async def called(access_control: AccessControl, receive: Any, address: str = "?") -> int:
    """The status of a request whose body comes from `receive`."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    await access_control(scope | {"client": (address, 1)}, receive, send)
    return int(sent[0]["status"])


def test_a_body_that_does_not_come_ends() -> None:
    async def never() -> Any:
        await asyncio.sleep(60)

    access_control = AccessControl(echo, Limits(hosts=None, seconds=0.05))
    assert asyncio.run(called(access_control, never)) == 408
    assert not access_control.running


async def whole() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def turns() -> None:
    """Until everybody has come as far as they get."""
    for _ in range(100):
        await asyncio.sleep(0)


async def message_at_once(limits: Limits, receive: Any, app: Any, go: asyncio.Event) -> list[int]:
    """Statuses of five requests that are there at the same time."""
    access_control = AccessControl(app, limits)
    request = [asyncio.create_task(called(access_control, receive)) for _ in range(5)]
    await turns()
    go.set()
    message = list(await asyncio.gather(*request))
    assert not access_control.running
    assert access_control.buffered == 0
    return sorted(message)


@pytest.mark.parametrize(("at_once", "each"), [(2, 9), (9, 2)])
def test_so_many_at_once(at_once: int, each: int) -> None:
    async def all_of_them() -> list[int]:
        go = asyncio.Event()

        async def works(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await echo(scope, receive, send)

        limits = Limits(hosts=None, at_once=at_once, at_once_each=each, per_minute=0)
        return await message_at_once(limits, whole, works, go)

    assert asyncio.run(all_of_them()) == [200, 200, 503, 503, 503]


def test_a_few_addresses_cannot_take_every_place() -> None:
    async def all_of_them() -> list[int]:
        go = asyncio.Event()

        async def works(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await echo(scope, receive, send)

        access_control = AccessControl(
            works, Limits(hosts=None, at_once=8, at_once_each=4, per_minute=0)
        )
        many = [f"192.0.2.{n % 3}" for n in range(30)]
        request = [
            asyncio.create_task(called(access_control, whole, a)) for a in [*many, "198.51.100.7"]
        ]
        await turns()
        go.set()
        return list(await asyncio.gather(*request))

    *message, last = asyncio.run(all_of_them())
    assert message.count(200) == 6
    assert last == 200


def test_a_request_that_is_still_arriving_takes_nobody_s_place() -> None:
    async def all_of_them() -> list[int]:
        go = asyncio.Event()

        async def slow() -> Any:
            await go.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        return await message_at_once(Limits(hosts=None, at_once=1, per_minute=0), slow, echo, go)

    assert asyncio.run(all_of_them()) == [200] * 5


def test_all_bodies_together_are_limited() -> None:
    async def all_of_them() -> list[int]:
        go = asyncio.Event()

        async def half() -> Any:
            if not go.is_set():
                await asyncio.sleep(0)
                return {"type": "http.request", "body": b"x" * 40, "more_body": True}
            return {"type": "http.request", "body": b"", "more_body": False}

        limits = Limits(hosts=None, max_buffered=300, max_bytes=10**6, per_minute=0)
        return await message_at_once(limits, half, echo, go)

    assert 503 in asyncio.run(all_of_them())


@pytest.mark.parametrize("path", ["/", "/deep/er"])
def test_the_log_names_no_client_and_no_words(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unseen.serve"):
        client().get(f"{path}?label=secret", headers={"cookie": "x=private"})
    message = " ".join(
        record.getMessage() for record in caplog.records if record.name == "unseen.serve"
    )
    assert "GET" in message
    assert not any(word in message for word in ("secret", "private", "testclient"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://testserver"}, 200),
        ({"origin": "http://testserver:80"}, 200),
        ({"origin": "http://testserver:8001"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://testserver.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[broken"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "https://behind.a.proxy"}, 200),
    ],
)
def test_another_origin_may_not_send(headers: dict[str, str], status: int) -> None:
    assert client().post("/", headers=headers).status_code == status


def test_guessing_a_token_is_slowed_down_and_holders_elsewhere_are_not() -> None:
    access_control = AccessControl(echo, Limits(hosts=None, token="a-secret-word"))
    guesser, holder = TestClient(access_control, client=("10.0.0.1", 1)), TestClient(access_control)
    message = [
        guesser.get("/", headers={"authorization": f"Bearer guess {turn}"}).status_code
        for turn in range(30)
    ]
    assert set(message[:5]) == {401}
    assert set(message[-5:]) == {429}
    right = {"authorization": "Bearer a-secret-word"}
    assert guesser.get("/", headers=right).status_code == 429  # or guessing would go on
    assert holder.get("/", headers=right).status_code == 200


def test_nobody_without_a_token_asks_for_ever() -> None:
    request = client(token="a-secret-word", per_minute=10)
    assert [request.get("/").status_code for _ in range(12)] == [401] * 10 + [429] * 2
    assert request.get("/", headers={"authorization": "Bearer a-secret-word"}).status_code == 200


@pytest.mark.parametrize("token", ["", "short", "not in a header\n", "x" * 11, "é" * 20])
def test_a_token_that_keeps_nobody_out_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="12 letters"):
        Limits(token=token)

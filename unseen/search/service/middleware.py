"""What stands before every request: who may ask, how much, how often, and what browsers may do.

A request that is refused gets a short JSON answer and a status that says why: 400 wrong host, 401
no token, 403 from another site, 408 too slow, 413 too large, 429 too often, 503 too many at once.
Probes of load balancers pass: `/health` (this process answers) and `/ready` (and can read the
index) tell nothing else. A request is in work once all of it has arrived, so that slow ones take
nobody's place; where bodies hold too many bytes, the unfinished one that has held most for longest
is given up.
Nothing about a client is kept but, for a minute, how often its address asked; logs
name the route, the status and the time it took. What a connection does before there is a request:
`connections.py`.
"""

import asyncio
import hmac
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unseen.search.service.metrics import Metrics
from unseen.search.service.rate_limiter import RateLimiter, home

COOKIE = "unseen"
COUNT = "unseen.count"  # of a scope: count(more) says whether as many more requests are allowed
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
log = logging.getLogger("unseen.serve")


TOKEN = re.compile(r"[A-Za-z0-9._~-]{12,}")  # the same in an address, a header and a cookie
FULL = "too much is being sent at once: try again in a moment"
GUESSES = 10  # wrong tokens of one address in a minute
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Limits:
    """What a service bears.

    Args:
        max_bytes: of a request's body.
        max_buffered: bytes of all bodies at one time.
        at_once: requests in work; the last quarter of the places is for addresses that have none in
            work, so that a few cannot take every place.
        at_once_each: requests in work of one address.
        per_minute: requests of one address; 0 for any number.
        seconds: for a body to arrive.
        hosts: names the page may be reached by; None for any.
        token: the word to ask for; None lets everybody in.
    """

    max_bytes: int = 20_000_000
    max_buffered: int = 200_000_000
    at_once: int = 32
    at_once_each: int = 16
    per_minute: int = 1200
    seconds: float = 20.0
    hosts: tuple[str, ...] | None = LOOPBACK
    token: str | None = None

    def __post_init__(self) -> None:
        if self.token is not None and not TOKEN.fullmatch(self.token):
            raise ValueError(
                "a token must have at least 12 letters, digits or - . _ ~, and nothing else: "
                "--token new makes one up"
            )


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """Ends a request with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class AccessControl:
    """Wraps an application. Several processes may share rate limiter and metrics; other limits are
    each one's own. probes: addresses that need no token, and whether all is well."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        rate_limiter: RateLimiter | None = None,
        metrics: Metrics | None = None,
        probes: Mapping[str, Callable[[], bool]] | None = None,
    ) -> None:
        self.app, self.limits, self.probes = app, limits, probes or {}
        self.rate_limiter, self.metrics = rate_limiter or RateLimiter(), metrics or Metrics([])
        self.running: Counter[str] = Counter()  # requests in work of each address
        self.buffered = 0  # bytes of bodies
        self.arriving: set[_Body] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "GET" and scope["path"] in self.probes:
            await _Answer(send).probed(await run_in_threadpool(self.probes[scope["path"]]))
            return
        began, answer = time.perf_counter(), _Answer(send)
        address = (scope.get("client") or ("?",))[0]
        body = _Body()
        try:
            self._check(scope, address)
            if self._wants_cookie(scope):
                await answer.redirect(f"{COOKIE}={self.limits.token}")
                return
            with self._arrival(body):
                await self._fill(body, receive)
            scope[COUNT] = partial(self._counted, address)
            with self._in_work(address):
                await self.app(scope, body.replayed(receive), answer)
        except Refused as refused:
            await answer.refuse(refused)
        finally:
            self.buffered -= body.size
            route = getattr(scope.get("route"), "path", "-")
            took = time.perf_counter() - began
            self.metrics.count(route, answer.status, took)
            log.info("%s %s %s %.0f ms", scope["method"], route, answer.status, 1000 * took)

    def _check(self, scope: Scope, address: str) -> None:
        limits, headers = self.limits, _headers(scope)
        if limits.hosts is not None and _host(headers.get("host", "")) not in limits.hosts:
            raise Refused(400, "this name is not served here")
        if scope["method"] not in ("GET", "HEAD") and _is_foreign(
            headers, scope.get("scheme", "http")
        ):
            raise Refused(403, "asked from another site")
        self._let_in(scope, headers, address)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limits.max_bytes:
            raise Refused(413, f"at most {limits.max_bytes} bytes")

    def _let_in(self, scope: Scope, headers: dict[str, str], address: str) -> None:
        """By token, where one is asked for, and so often. An address that guessed too often waits
        with a right token too: else guessing would go on."""
        tokens = [word for word in _request_tokens(scope, headers) if word]
        wanted, kind = (self.limits.token or "").encode(), "asked"
        if self.limits.token is not None:
            if tokens and self.rate_limiter.is_full("guessed", address, GUESSES):
                raise Refused(429, "too many wrong tokens: wait a minute")
            if not any(hmac.compare_digest(word.encode(), wanted) for word in tokens):
                kind = "guessed" if tokens else "unknown"
        per_minute = GUESSES if kind == "guessed" else self.limits.per_minute
        if per_minute and not self.rate_limiter.allows(kind, address, per_minute):
            raise Refused(429, f"at most {per_minute} requests a minute")
        if kind != "asked":
            raise Refused(401, "a token is needed: open the address that `unseen serve` printed")

    def _counted(self, address: str, more: int) -> bool:
        """Whether a request may count as so many more, because of all that it holds."""
        each = self.limits.per_minute
        return not each or all(
            self.rate_limiter.allows("asked", address, each) for _ in range(more)
        )

    def _wants_cookie(self, scope: Scope) -> bool:
        """A browser that came with the token in the address gets it as a cookie instead."""
        return self.limits.token is not None and scope["path"] == "/" and bool(_query_token(scope))

    @contextmanager
    def _arrival(self, body: "_Body") -> Iterator[None]:
        self.arriving.add(body)
        try:
            yield
        finally:
            self.arriving.discard(body)

    async def _fill(self, body: "_Body", receive: Receive) -> None:
        """All of a request, unless it grows too large, comes too slowly, or gives way."""
        more = True
        try:
            async with asyncio.timeout(self.limits.seconds) as body.deadline:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the request did not arrive whole")
                    more = message.get("more_body", False)
                    self.buffered += body.add(message.get("body", b""))
                    if body.size > self.limits.max_bytes:
                        raise Refused(413, f"at most {self.limits.max_bytes} bytes")
                    while self.buffered > self.limits.max_buffered and not body.is_dropped:
                        self._drop(max(self.arriving, key=_Body.cost))
                    if body.is_dropped:
                        raise TimeoutError
        except TimeoutError:
            if body.is_dropped:
                raise Refused(503, FULL) from None
            raise Refused(408, "the request took too long to arrive") from None

    def _drop(self, body: "_Body") -> None:
        """Its bytes are free at once; whoever waits for more of it is told."""
        self.arriving.discard(body)
        self.buffered -= body.drop()

    @contextmanager
    def _in_work(self, address: str) -> Iterator[None]:
        whose = home(address)
        places = self.limits.at_once
        if self.running[whose]:
            places -= places // 4
        if self.running.total() >= places or self.running[whose] >= self.limits.at_once_each:
            raise Refused(503, "too many requests at once: try again in a moment")
        self.running[whose] += 1
        try:
            yield
        finally:
            self.running[whose] -= 1
            if not self.running[whose]:
                del self.running[whose]


class _Body:
    """What has arrived of a request; handed on once, in one piece."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0
        self.since = time.monotonic()
        self.deadline: asyncio.Timeout | None = None
        self.is_dropped = False

    def add(self, chunk: bytes) -> int:
        """The number of bytes that there are more."""
        self.chunks.append(chunk)
        self.size += len(chunk)
        return len(chunk)

    def cost(self) -> float:
        """Bytes that are held, times seconds."""
        return self.size * (time.monotonic() - self.since)

    def drop(self) -> int:
        """The number of bytes that there were."""
        size, self.size, self.chunks, self.is_dropped = self.size, 0, [], True
        if self.deadline is not None and not self.deadline.expired():
            self.deadline.reschedule(0)
        return size

    def replayed(self, receive: Receive) -> Receive:
        """After the body only the end of the connection can follow."""
        waiting: list[Message] = [
            {"type": "http.request", "body": b"".join(self.chunks), "more_body": False}
        ]
        self.chunks = []

        async def message() -> Message:
            return waiting.pop() if waiting else await receive()

        return message


class _Answer:
    """Passes an answer on with the headers of every answer; knows whether it has begun."""

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [(n.encode(), v.encode()) for n, v in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await self.send(message)

    async def refuse(self, refused: Refused) -> None:
        if self.status:
            return
        body = json.dumps({"detail": refused.reason}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        if refused.status in (429, 503):
            headers.append((b"retry-after", b"2"))
        await self._whole(refused.status, headers, body)

    async def probed(self, well: bool) -> None:
        kind = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store")]
        await self._whole(200 if well else 503, kind, b"ok\n" if well else b"not ready\n")

    async def redirect(self, cookie: str) -> None:
        value = f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
        await self._whole(303, [(b"location", b"/"), (b"set-cookie", value.encode())], b"")

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _host(header: str) -> str:
    """A host without its port; an IPv6 address stands in brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _is_foreign(headers: dict[str, str], scheme: str) -> bool:
    """Whether a browser sends this for a page of another site: it says so, or names the page's
    origin. Other programs say neither."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    if origin is None:
        return False
    try:
        request, own = urlsplit(origin), urlsplit(f"{scheme}://{headers.get('host', '')}")
        places = [(url.hostname, url.port or PORTS.get(url.scheme)) for url in (request, own)]
    except ValueError:
        return True
    return places[0] != places[1] or places[0][0] is None


def _request_tokens(scope: Scope, headers: dict[str, str]) -> list[str]:
    tokens = [headers.get("authorization", "").removeprefix("Bearer "), _query_token(scope)]
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        tokens.append(cookie.value if cookie else "")
    except CookieError:
        pass
    return tokens


def _query_token(scope: Scope) -> str:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]

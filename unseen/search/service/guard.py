"""What stands before every request: who may ask, how much, how often, and what browsers may do.

A request that is refused gets a short JSON answer and a status that says why: 400 wrong host, 401
no token, 403 from another site, 408 too slow, 413 too large, 429 too often, 503 too many at once.
Nothing about a client is kept but, for a minute, how often its address asked; logs name the route,
the status and the time it took.
"""

import asyncio
import hmac
import json
import logging
import time
from collections import deque
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "unseen"
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


@dataclass(frozen=True)
class Limits:
    """max_bytes: of a request's body. at_once: requests in work. per_minute: requests of one
    address, 0 for any number. seconds: for a body to arrive. hosts: names the page may be reached
    by, None for any."""

    max_bytes: int = 20_000_000
    at_once: int = 32
    per_minute: int = 1200
    seconds: float = 20.0
    hosts: tuple[str, ...] | None = LOOPBACK
    token: str | None = None


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """Ends a request with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Guard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.running = 0
        self.times: dict[str, deque[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, answer = time.perf_counter(), _Answer(send)
        self.running += 1
        try:
            self._check(scope)
            if self._wants_cookie(scope):
                await answer.redirect(f"{COOKIE}={self.limits.token}")
            else:
                await self.app(scope, self._limited(scope, receive), answer)
        except Refused as refused:
            await answer.refuse(refused)
        finally:
            self.running -= 1
            route = getattr(scope.get("route"), "path", "-")
            took = 1000 * (time.perf_counter() - began)
            log.info("%s %s %s %.0f ms", scope["method"], route, answer.status, took)

    def _check(self, scope: Scope) -> None:
        limits, headers = self.limits, _headers(scope)
        if limits.hosts is not None and _host(headers.get("host", "")) not in limits.hosts:
            raise Refused(400, "this name is not served here")
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] != "GET":
            raise Refused(403, "asked from another site")
        if limits.token is not None and not self._knows_token(scope, headers):
            raise Refused(401, "a token is needed: open the address that `unseen serve` printed")
        if self.running > limits.at_once:
            raise Refused(503, "too many requests at once: try again in a moment")
        self._count(scope)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limits.max_bytes:
            raise Refused(413, f"at most {limits.max_bytes} bytes")

    def _knows_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = [headers.get("authorization", "").removeprefix("Bearer "), _asked_token(scope)]
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
            given.append(cookie.value if cookie else "")
        except CookieError:
            pass
        wanted = (self.limits.token or "").encode()
        return any(hmac.compare_digest(word.encode(), wanted) for word in given)

    def _wants_cookie(self, scope: Scope) -> bool:
        """A browser that came with the token in the address gets it as a cookie instead."""
        return self.limits.token is not None and scope["path"] == "/" and bool(_asked_token(scope))

    def _count(self, scope: Scope) -> None:
        if not self.limits.per_minute:
            return
        now, address = time.monotonic(), (scope.get("client") or ("?",))[0]
        if len(self.times) > 10_000:  # forget addresses that have been silent for a minute
            self.times = {a: t for a, t in self.times.items() if t and now - t[-1] < 60}
        times = self.times.setdefault(address, deque())
        while times and now - times[0] > 60:
            times.popleft()
        if len(times) >= self.limits.per_minute:
            raise Refused(429, f"at most {self.limits.per_minute} requests a minute")
        times.append(now)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """A body that grows too large, or comes too slowly, ends the request."""
        left, until = self.limits.max_bytes, time.monotonic() + self.limits.seconds
        ended = False

        async def limited() -> Message:
            nonlocal left, ended
            if ended:  # only the end of the connection can follow, and that may take long
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.01, until - time.monotonic()))
            except TimeoutError:
                raise Refused(408, "the request took too long to arrive") from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(413, f"at most {self.limits.max_bytes} bytes")
            ended = not message.get("more_body", False)
            return message

        return limited


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

    async def redirect(self, cookie: str) -> None:
        kept = f"{cookie}; HttpOnly; SameSite=Strict; Path=/"
        await self._whole(303, [(b"location", b"/"), (b"set-cookie", kept.encode())], b"")

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


def _asked_token(scope: Scope) -> str:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]

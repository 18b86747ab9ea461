"""What a connection may do before there is a request: uvicorn's protocol, with a clock.

An application hears of a request once its headers are complete, and so never of connections that
stay silent or send a letter a minute. Here they end: headers must be complete ten seconds after the
connection, or the answer before, and an answer must be read. One address holds so many connections;
when all places are taken, the one that has sent least for its time gives way, be it silent, idle or
in the middle of an upload: only requests that have arrived whole are safe.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from unseen.search.service.rate_limiter import home


class Connection(H11Protocol):
    """The limits hold for each process. Addresses of a named proxy have no limit of their own."""

    header_seconds = 10.0
    read_seconds = 20.0  # for an answer that fills the buffers
    last_seconds = 1.0  # for the first request of a connection when the process is to end
    most = 512
    most_per_address = 48
    head_start = 10_000  # bytes that a new connection counts as having sent

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _since = 0.0
    _received = 0  # bytes since then
    _home = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._home = home(self.client[0]) if self.client else ""
        if not self._is_proxy() and self._of_address() > self.most_per_address:
            transport.abort()
            return
        if len(self.connections) > self.most:
            self._make_room()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._is_waiting():
            _cancel(self._deadline)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_waiting() and not self.transport.is_closing():
            self._expect_request()

    def shutdown(self) -> None:
        """Who has just connected is still answered, by a process that another one replaces."""
        request: Any = self.cycle  # None before the first one
        if request is None and not self.transport.is_closing():
            self.loop.call_later(self.last_seconds, self._end)
        else:
            super().shutdown()

    def _end(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._deadline)
        _cancel(self._unread)
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        _cancel(self._deadline)
        self._since, self._received = self.loop.time(), 0
        self._deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _is_waiting(self) -> bool:
        """No request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _is_unfinished(self) -> bool:
        """No whole request has arrived."""
        return self._is_waiting() or self.cycle.more_body

    def _pace(self) -> float:
        """Bytes a second since a request was expected."""
        return (self.head_start + self._received) / (self.loop.time() - self._since + 1)

    def _of_address(self) -> int:
        return sum(getattr(other, "_home", None) == self._home for other in self.connections)

    def _is_proxy(self) -> bool:
        named = self.config.forwarded_allow_ips if self.config.proxy_headers else []
        return self.client is not None and self.client[0] in (named or [])

    def _make_room(self) -> None:
        others = [
            other
            for other in self.connections
            if isinstance(other, Connection)
            and other is not self
            and not other.transport.is_closing()
            and other._is_unfinished()
        ]
        if others:
            min(others, key=lambda other: other._pace()).transport.abort()
        else:
            self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

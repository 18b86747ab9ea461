"""Starting the service: settings that several processes can share, and uvicorn."""

import ipaddress
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.core.extras import install_command
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import LOOPBACK, Limits
from unseen.search.service.rate_limiter import RateLimiter

VARIABLE = "UNSEEN_SERVE"  # hands the settings to further processes


@dataclass
class Settings:
    """Everything a process needs to serve."""

    index: str
    other: str | None = None
    run: str | None = None
    host: str = "127.0.0.1"
    token: str | None = None
    per_minute: int = 1200
    proxies: list[str] = field(default_factory=list)  # whose X-Forwarded-For is believed
    shared: str | None = None  # a folder that processes count in together

    @property
    def is_open(self) -> bool:
        """Whether other machines can ask."""
        return not is_loopback(self.host) or bool(self.proxies)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check(settings: Settings, everybody: bool) -> None:
    """Raises ValueError for a token that keeps nobody out, or none where others can ask, unless
    `everybody` is meant."""
    Limits(token=settings.token)
    for proxy in settings.proxies:
        ipaddress.ip_address(proxy)
    if settings.is_open and settings.token is None and not everybody:
        raise ValueError(
            "every machine that reaches this one could look at the images: add --token new, "
            "or --no-token if everybody may"
        )


def open_registries(settings: Settings) -> tuple[IndexRegistry, IndexRegistry | None]:
    run = None if settings.run is None else Path(settings.run)
    first = IndexRegistry(Path(settings.index), run)
    return first, None if settings.other is None else IndexRegistry(Path(settings.other))


def application(settings: Settings, registry: IndexRegistry, other: IndexRegistry | None) -> Any:
    """The guarded application; by a name that is not this machine's own only with a token."""
    try:
        from unseen.search.service.app import create_app  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError(f"the search page needs fastapi: {install_command('search')}") from error
    hosts = None if settings.is_open else LOOPBACK
    limits = Limits(hosts=hosts, token=settings.token, per_minute=settings.per_minute)
    shared = None if settings.shared is None else Path(settings.shared)
    return create_app(registry, other, limits, shared)


def from_environment() -> Any:
    """The application of one of several processes."""
    settings = Settings(**json.loads(os.environ[VARIABLE]))
    return application(settings, *open_registries(settings))


def run(app: Any, settings: Settings, port: int) -> None:
    """Serves until it is stopped."""
    import uvicorn  # noqa: PLC0415

    uvicorn.run(app, host=settings.host, port=port, **options(settings.proxies))


def run_many(settings: Settings, port: int, workers: int) -> None:
    """As `run`, with so many processes that count requests together. On SIGHUP each is replaced by
    a new one, which takes over once it answers."""
    import uvicorn  # noqa: PLC0415

    name = f"{__name__}:{from_environment.__name__}"
    with tempfile.TemporaryDirectory(prefix="unseen-") as shared:
        RateLimiter.create(Path(shared) / "rate limiter")
        settings.shared = shared
        os.environ[VARIABLE] = json.dumps(vars(settings))
        uvicorn.run(
            name,
            factory=True,
            host=settings.host,
            port=port,
            workers=workers,
            **options(settings.proxies),
        )


def options(proxies: Sequence[str] = ()) -> dict[str, Any]:
    """Of uvicorn. Nobody's X-Forwarded-For is believed unless a proxy was named."""
    from unseen.search.service.connections import Connection  # noqa: PLC0415

    return {
        "http": Connection,
        "ws": "none",  # would pass by the guard
        "access_log": False,  # it would name addresses and queries; the guard logs routes
        "log_level": "error",  # a line for each wrong request would fill the disk
        "server_header": False,
        "proxy_headers": bool(proxies),
        "forwarded_allow_ips": list(proxies),
        "timeout_keep_alive": 5,
        "timeout_graceful_shutdown": 30,  # for answers that are under way
        "timeout_worker_healthcheck": 60,  # reading a model takes a while
        "h11_max_incomplete_event_size": 64 * 1024,
    }

"""Starting the service: settings that several processes can share, and uvicorn."""

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.search.service.guard import LOOPBACK, Limits
from unseen.search.service.library import Library

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def libraries(settings: Settings) -> tuple[Library, Library | None]:
    run = None if settings.run is None else Path(settings.run)
    first = Library(Path(settings.index), run)
    return first, None if settings.other is None else Library(Path(settings.other))


def application(settings: Settings, library: Library, other: Library | None) -> Any:
    """The guarded application; by a name that is not this machine's own only with a token."""
    try:
        from unseen.search.service.app import create_app  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ValueError("the search page needs fastapi: pip install 'unseen[search]'") from error
    hosts = LOOPBACK if is_loopback(settings.host) else None
    limits = Limits(hosts=hosts, token=settings.token, per_minute=settings.per_minute)
    return create_app(library, other, limits)


def from_environment() -> Any:
    """The application of one of several processes."""
    settings = Settings(**json.loads(os.environ[VARIABLE]))
    return application(settings, *libraries(settings))


def run(app: Any, host: str, port: int) -> None:
    """Serves until it is stopped."""
    import uvicorn  # noqa: PLC0415

    uvicorn.run(app, host=host, port=port, **_options())


def run_many(host: str, port: int, workers: int) -> None:
    import uvicorn  # noqa: PLC0415

    name = f"{__name__}:{from_environment.__name__}"
    uvicorn.run(name, factory=True, host=host, port=port, workers=workers, **_options())


def _options() -> dict[str, Any]:
    return {
        "access_log": False,  # it would name addresses and queries; the guard logs routes
        "log_level": "warning",
        "server_header": False,
        "timeout_keep_alive": 5,
        "limit_concurrency": 256,
        "h11_max_incomplete_event_size": 64 * 1024,
    }

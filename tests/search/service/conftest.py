"""An index of a tiny run, served: in this process, or on a port of this machine."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from unseen.evaluation.calibration import Calibration
from unseen.runs.trained_run import Trained
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.service import start_service
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits
from unseen.search.writer import Writer

HOSTS = ("testserver", "127.0.0.1", "localhost")


@pytest.fixture(scope="session")
def index_folder(model: Trained, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_index(tmp_path_factory.mktemp("served") / "tiny.index", model, images)


def made_index(folder: Path, model: Trained, images: Path) -> Path:
    with Writer.create(folder, model_entry(model)) as writer:
        ingest(writer, model, find([images]))
    return folder


@pytest.fixture(scope="session")
def registry(index_folder: Path) -> IndexRegistry:
    return IndexRegistry(index_folder)


@pytest.fixture
def client(registry: IndexRegistry) -> Iterator[TestClient]:
    app = create_app(registry, None, Limits(hosts=HOSTS, per_minute=0))
    with TestClient(app) as opened:
        yield opened


@pytest.fixture(scope="session")
def address(registry: IndexRegistry) -> Iterator[str]:
    """A real server, with what changed against itself."""
    limits = Limits(hosts=HOSTS, per_minute=0, max_bytes=2_000_000, seconds=3.0)
    with serving(create_app(registry, registry, limits)) as url:
        yield url


def calibration(threshold: float, weights: list[float]) -> Calibration:
    """Made up; weights: of 1, the similarity and the logarithm of the number of images."""
    return Calibration(
        fmr=0.001,
        threshold=threshold,
        measured_fmr=0.001,
        bound=0.01,
        confidence=0.95,
        fnmr=0.5,
        images_with_false_match=0.1,
        gallery=30,
        classes=6,
        wrong_pairs=375,
        weights=weights,
        error=0.1,
        reliability=[],
    )


class serving:  # noqa: N801  (reads as a verb)
    """`with serving(app) as url`: uvicorn as `unseen serve` sets it up, in a thread, stopped at the
    end. `options`: of uvicorn, instead of those."""

    def __init__(self, app: object, **options: Any) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        given = {**start_service.options(), "log_level": "critical", **options}
        config = uvicorn.Config(app, **given)  # type: ignore[arg-type]
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True
        )

    def __enter__(self) -> str:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=10)
        self.socket.close()

"""Hostile requests over a real connection: nothing outside the index, and it still answers.

Every run sends a sample; `tests/faults` sends thousands at once. All go to this machine alone.
"""

import json
import random
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.faults.hostile import KINDS, may_be_message
from tests.search.service.conftest import HOSTS, serving
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits

ROOT = Path(__file__).parents[3]


def test_nothing_gets_in_or_out(address: str, images: Path) -> None:
    r = random.Random(210)
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with httpx.Client(base_url=address, timeout=20) as client:
        for turn in range(210):
            method, path, body, headers = KINDS[turn % len(KINDS)](r)
            try:
                url = httpx.URL(address).copy_with(raw_path=path.encode("utf-8", "replace"))
                response = client.request(method, url, content=body, headers=headers)
            except httpx.TransportError:
                continue  # cut off by the server, or never sent by the client
            except (httpx.InvalidURL, UnicodeError, ValueError):
                continue
            assert response.status_code != 500, (method, path[:200])
            assert response.status_code < 500 or response.status_code == 503
            assert may_be_message(path, response), path[:200]
        assert client.get("/api/health").json()["images"] == 30
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun) / 1024
    assert grown < 400  # megabytes


def test_slow_and_silent_connections_end(address: str) -> None:
    """Half a request, then nothing: others are answered meanwhile, and it is ended."""
    place = urlsplit(address)
    half = b"POST /api/search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\nhalf"
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=20))
            for _ in range(10)
        ]
        for connection in silent:
            connection.sendall(half)
        assert httpx.get(f"{address}/api/health", timeout=10).status_code == 200
        answers = [connection.recv(4096)[:12] for connection in silent]
    assert answers == [b"HTTP/1.1 408"] * 10


@pytest.mark.parametrize("number", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_every_route_keeps_to_its_description(
    number: int, index_folder: Path, tmp_path: Path
) -> None:
    """Schemathesis makes requests from openapi.json and compares the answers with it. Some change
    the index: it is a copy."""
    own = IndexRegistry(Path(shutil.copytree(index_folder, tmp_path / "own.index")))
    limits = Limits(hosts=HOSTS, per_minute=0, max_bytes=2_000_000, seconds=3.0)
    with serving(create_app(own, own, limits)) as address:
        keeps_to_its_description(address, number)


def keeps_to_its_description(address: str, number: int) -> None:
    import schemathesis  # here: collecting tests does without it

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    allowed = (200, 202, 400, 401, 403, 404, 405, 408, 413, 422, 429, 503)
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=number,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def keeps(case: schemathesis.Case) -> None:
            assert case.call(timeout=20).status_code in allowed

        keeps()


@pytest.mark.slow
def test_ten_thousand_requests_at_once_keep_nobody_waiting(index_folder: Path) -> None:
    """Of 300 connections, half of which know the token; memory as the system counts it."""
    words = [sys.executable, "-m", "tests.faults.hostile", str(index_folder), "10000", "300"]
    message = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    result = json.loads(message)
    assert set(result["answers"]) & {"500", "told a secret"} == set()
    assert set(result["holder is told"]) == {"200"}  # though others with the token take most places
    assert result["holder waits, seconds"]["p95"] < 1
    assert result["server peak, MB"] < 1500

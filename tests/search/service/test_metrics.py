"""Counts of requests add up over processes; probes pass everybody and tell nothing."""

import multiprocessing
import re
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.search.service.conftest import HOSTS
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.metrics import Metrics
from unseen.search.service.middleware import Limits

TOKEN = "a-long-enough-word"


def values(text: str) -> dict[str, float]:
    assert all(re.fullmatch(r"# TYPE \w+ \w+|\S+ \S+", line) for line in text.splitlines())
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def request(path: Path) -> None:
    some = Metrics(["/b", "/a"], path)
    for _ in range(200):
        some.count("/a", 200, 0.03)


def test_processes_count_together(tmp_path: Path) -> None:
    own, path = Metrics(["/a", "/b"], tmp_path / "metrics"), tmp_path / "metrics"
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=request, args=(path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    own.count("/a", 404, 0.01)  # an edge belongs to its bucket
    own.count("/nowhere", 429, 99.0)
    result = values(own.text({"index_images": 7}))
    assert result['unseen_requests_total{route="/a",status="2xx"}'] == 400
    assert result['unseen_requests_total{route="/a",status="4xx"}'] == 1
    assert result['unseen_request_seconds_bucket{route="/a",le="0.01"}'] == 1
    assert result['unseen_request_seconds_bucket{route="/a",le="0.05"}'] == 401
    assert result['unseen_request_seconds_bucket{route="/a",le="+Inf"}'] == 401
    assert result['unseen_request_seconds_sum{route="/a"}'] == pytest.approx(12.01)
    assert result['unseen_request_seconds_bucket{route="-",le="10.0"}'] == 0
    assert result['unseen_request_seconds_count{route="-"}'] == 1
    assert result["unseen_index_images"] == 7
    assert not any("/b" in name for name in result)


def test_probes_pass_and_metrics_want_the_token(registry: IndexRegistry) -> None:
    limits = Limits(hosts=HOSTS, per_minute=1, token=TOKEN)
    with TestClient(create_app(registry, None, limits), base_url="http://elsewhere") as client:
        for _ in range(3):
            for probe in ("/health", "/ready"):
                answer = client.get(probe)
                assert (answer.status_code, answer.text) == (200, "ok\n")
    with TestClient(create_app(registry, None, limits)) as client:
        assert client.get("/metrics").status_code == 401
        message = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        assert message.headers["content-type"].startswith("text/plain; version=0.0.4")
        result = values(message.text)
        assert result['unseen_requests_total{route="-",status="4xx"}'] == 1
        assert result["unseen_index_images"] == 30
        assert result["unseen_index_compatible_images"] == 0


def test_an_index_that_is_cut_is_not_ready(index_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(index_folder, tmp_path / "i")
    limits = Limits(hosts=HOSTS, per_minute=0)
    with TestClient(create_app(IndexRegistry(tmp_path / "i"), None, limits)) as client:
        assert client.get("/ready").status_code == 200
        with next(tmp_path.rglob("vectors.npy")).open("r+b") as file:
            file.truncate(200)
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200

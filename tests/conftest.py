"""One thread and one cache for all, a narrow network for whole runs, and the fixed batches that
numeric checks of losses and miners use."""

import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core.relevance import GradedPairs, KnownPairs, Labels, LabelSets, Levels, Relevance
from unseen.core.tuples import Triplets

MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes: several times what the tests of two workers leave at a time


def _has_room(memory: Path) -> bool:
    """Is this a disk in memory with room on it, from which programs may be started?"""
    if not memory.is_mount():
        return False
    disk, facts = os.statvfs(memory), Path("/proc/meminfo").read_text()
    (free,) = re.findall(r"^MemAvailable: +(\d+) kB", facts, re.M)
    room = min(disk.f_bavail * disk.f_frsize, 1024 * int(free))
    return room > ROOM and not disk.f_flag & os.ST_NOEXEC


if "TMPDIR" not in os.environ and _has_room(MEMORY):  # a renamed file of a real disk waits for it
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
CANNOT = "this machine cannot"  # how the reason of a skip begins that no installation would mend
_refused: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", type=int, help="of the slow tests, every tenth, from this one on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tenth = config.getoption("--tenth")
    if tenth is None:
        return
    slow = sorted(item.nodeid for item in items if item.get_closest_marker("slow"))
    chosen = set(slow[tenth::10])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(CANNOT):
            _refused.append(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note_skip(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where skips are refused, a promise that this machine could have run is not left out."""
    if os.environ.get("UNSEEN_SKIPS") == "refuse" and _refused:
        print("\nskipped, though this machine could run it:", *sorted(set(_refused)), sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def on_circle(*degrees: float) -> Tensor:
    angle = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return torch.stack([angle.cos(), angle.sin()], dim=1)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small kernels are faster so, and two workers do not fight for two cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_flushes() -> Iterator[None]:
    """No test cuts the power: what a killed process wrote is there without a flush of the disk,
    which takes milliseconds each time. Tests of flushing count calls of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written to the user's cache, and characters are drawn once per worker; nor is
    anything trusted that the user trusts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def memory_uris(monkeypatch: pytest.MonkeyPatch) -> None:
    """memory:// is read as well: files elsewhere without a network."""
    from unseen.core import uris

    monkeypatch.setattr(uris, "PROTOCOLS", (*uris.PROTOCOLS, "memory"))


@pytest.fixture(scope="module")
def narrow_network() -> Iterator[None]:
    """The built-in network with a quarter of its channels, for files whose runs are about
    everything but its size."""
    from unseen.models.small_conv import SmallConv

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SmallConv, "num_features", 64)
        yield


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a few characters, for tests that copy it and change the copy."""
    from unseen.config import schema as configs
    from unseen.runs.prepare import prepare
    from unseen.runs.run import train_and_evaluate

    words = ["data.max_classes=12", "data.size=16", "batch_size=8", "embedding_size=8"]
    words += ["epochs=1", "sampler.steps=2", "workers=0", 'metrics=["recall@1"]']
    folder = tmp_path_factory.mktemp("finished") / "run"
    train_and_evaluate(prepare(configs.make(configs.override({}, words))), folder, "test")
    return folder


@pytest.fixture(autouse=True)
def _same_starting_values() -> None:
    """Layers made in a test draw from torch's global generator: the same in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def kinds() -> Callable[[Tensor], dict[str, Relevance]]:
    """Of items with these classes [n], every kind of relevance by its name. Labels and levels say
    what the classes say; of the others each says something else."""

    def make(classes: Tensor) -> dict[str, Relevance]:
        own, number = classes.numpy(), len(classes)
        every = np.array([(i, j) for i in range(number) for j in range(i)])
        same = own[every[:, 0]] == own[every[:, 1]]
        known, near = every.sum(axis=1) % 3 > 0, every.sum(axis=1) % 5 == 0
        second = np.where(np.arange(number) % 3, own.max() + 1 + np.arange(number) % 2, -1)
        graded = every[same | near], np.where(near, 0.2, 1.0)[same | near]
        made: list[Relevance] = [
            Labels(own),
            Levels(np.stack([own // 2, own], axis=1), 2),
            LabelSets(np.stack([own, second], axis=1)),
            KnownPairs(every[known], same[known], number),
            GradedPairs(*graded, number),
        ]
        return {relevance.kind: relevance.sharded(own) for relevance in made}

    return make


@pytest.fixture
def spec() -> SimpleNamespace:
    """T: six unit vectors of three classes. U: the same directions, other norms. PX, PX4: proxies.
    CT: two centres per class. TR: one triplet per anchor of T. COL: collapsed. ORT: ideal."""
    T = on_circle(0, 25, 65, 128, 200, 262)
    norms = torch.tensor([1, 2, 1.5, 0.5, 1, 2], dtype=torch.float64)
    triplets = torch.tensor([(0, 1, 2), (1, 0, 2), (2, 3, 1), (3, 2, 4), (4, 5, 3), (5, 4, 0)])
    return SimpleNamespace(
        T=T,
        U=T * norms[:, None],
        labels=torch.tensor([0, 0, 1, 1, 2, 2]),
        PX=on_circle(15, 90, 235),
        PX4=on_circle(15, 90, 235, 330),
        CT=on_circle(0, 40, 50, 110, 190, 260).view(3, 2, 2),
        TR=Triplets(*triplets.T),
        COL=on_circle(30).repeat(6, 1),
        ORT=torch.eye(3, dtype=torch.float64).repeat_interleave(2, dim=0),
    )


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server of this session, with pgvector; its socket lies below /tmp,
    as names of sockets have about a hundred characters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of folders that a machine without sessions lacks
        try:
            import pgserver
        except ModuleNotFoundError:
            pytest.skip(f"{CANNOT}: pgserver has no wheel for this Python")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as place:
        server = pgserver.get_server(place, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """A bucket of an S3 server of this session, `s3://...`; the usual variables point there."""
    import logging

    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ENDPOINT_URL": f"http://{host}:{port}",
            "ENDPOINT": f"http://{host}:{port}",
            "ALLOW_HTTP": "true",
            "ACCESS_KEY_ID": "tests",
            "SECRET_ACCESS_KEY": "tests",
            "DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(f"AWS_{name}", value)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("tests")
        yield "s3://tests"
    server.stop()

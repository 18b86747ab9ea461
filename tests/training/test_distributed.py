"""Two real processes compute what one does, go on after a stop, and end together.

One pair of processes checks everything (two_processes.py); torchrun then goes on with the run in
which one of them was killed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import CANNOT
from unseen.data.glyphs import Glyphs
from unseen.models.frozen_batch_norm import sync_batch_norm
from unseen.training.distributed import CHECKS, Heartbeat, Processes, joined
from unseen.training.gradients import WholeBatch

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BODY = """
from torch import nn

class Body(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 1))
"""


GRADES = """
def near(rows, columns):
    return (1 - (rows - columns).abs() / 20).clamp(min=0)
"""


def environment(cache: Path) -> dict[str, str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return os.environ | more | {"UNSEEN_CACHE": str(cache), "PYTHONWARNINGS": "ignore"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def result_by_a_pair(folder: Path, runs: int) -> dict[str, Any]:
    """What the first of two processes found; runs: so many kinds of run."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "two_processes.py"), str(folder), str(runs)],
            env=environment(folder / "cache") | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        message = [process.communicate(timeout=900)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert ranks[0].returncode == 0, message
    assert ranks[1].returncode == -signal.SIGKILL, message
    result: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return result


@pytest.mark.parametrize(
    ("runs", "torchrun"), [(1, True), pytest.param(5, False, marks=pytest.mark.slow)]
)
def test_two_processes_are_one(runs: int, torchrun: bool, tmp_path: Path) -> None:
    """One test, so that the pair starts once however tests are shared among workers."""
    Glyphs(16, max_classes=24, cache_dir=tmp_path / "cache")  # drawn here, where faces are read
    (tmp_path / "body.py").write_text(BODY)
    (tmp_path / "grades.py").write_text(GRADES)
    result = result_by_a_pair(tmp_path, runs)
    assert len(result["gradients"]) >= 20
    assert max(result["gradients"].values()) < 1e-10
    assert len(result["runs"]) == runs
    for name, differences in result["runs"].items():
        assert differences["ranks"] == 0, name
        assert differences["weights"] < 1e-3, name
        assert differences["recall"] < 0.05, name
    assert result["resumed"], "a resumed run is not the undisturbed one"
    assert "another process of this run has ended; the same command goes on" in result["lost"]
    if torchrun:
        check_torchrun_goes_on(tmp_path)


THIRD = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from two_processes import centers
from unseen.training.distributed import joined_here
folder, rank = Path(sys.argv[2]), int(sys.argv[3])
with joined_here(folder / "meeting", rank, 3) as processes:
    (folder / f"result-{rank}.json").write_text(json.dumps(centers(processes)))
"""


@pytest.mark.slow
def test_three_processes_hold_the_class_centers_of_one(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", THIRD, str(HERE), str(tmp_path), str(rank)],
            env=environment(tmp_path / "cache"),
        )
        for rank in range(3)
    ]
    assert [process.wait(timeout=600) for process in ranks] == [0, 0, 0]
    result = [json.loads((tmp_path / f"result-{rank}.json").read_text()) for rank in range(3)]
    assert result[0] == result[1] == result[2]
    assert len(result[0]) == 9
    assert max(result[0].values()) < 1e-10


def torchrun(folder: Path, out: str, *options: str, inside: Sequence[str] = ()) -> list[str]:
    """The run of two_processes.py as a command; `inside`: what starts it elsewhere."""
    sys.path.insert(0, str(HERE))
    from two_processes import RUN

    command = [*inside, sys.executable, "-m", "torch.distributed.run", *options]
    return [*command, "-m", "unseen", "train", "glyphs", *RUN, "--out", str(folder / out)]


def check_torchrun_goes_on(folder: Path) -> None:
    """The run that lost a process ends like the undisturbed one."""
    done = subprocess.run(
        torchrun(folder, "killed", "--standalone", "--nproc-per-node", "2"),
        env=environment(folder / "cache"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "resumed at step" in done.stdout
    assert done.stdout.count("report:") == 1  # only the first process speaks
    assert_same_run(folder / "whole", folder / "killed")


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("result.json", "weights.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two network namespaces joined by a cable, 10.213.0.1 and 10.213.0.2, without other ways."""
    if shutil.which("ip") is None:
        pytest.skip(f"{CANNOT}: it has no iproute2")
    names = [f"unseen-{os.getpid()}-{number}" for number in (1, 2)]
    cables = [f"un{os.getpid()}-{number}" for number in (1, 2)]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        except subprocess.CalledProcessError:
            pytest.skip(f"{CANNOT}: no right to make network namespaces")
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
            ip("link", "set", cable, "netns", name, "name", "cable")
            ip("-n", name, "address", "add", f"10.213.0.{number}/24", "dev", "cable")
            for device in ("cable", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.slow
def test_two_hosts_are_one(hosts: list[str], tmp_path: Path) -> None:
    """Hosts that share a disk and a cable train what two processes of one host train."""
    env = environment(tmp_path / "cache") | {"GLOO_SOCKET_IFNAME": "cable"}
    options = ["--nnodes", "2", "--nproc-per-node", "1"]
    options += ["--master-addr", "10.213.0.1", "--master-port", "29500"]
    runs = [
        subprocess.Popen(
            torchrun(
                tmp_path,
                "hosts",
                *options,
                f"--node-rank={rank}",
                inside=["ip", "netns", "exec", host],
            ),
            env=env,
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        assert [run.wait(timeout=600) for run in runs] == [0, 0]
    finally:
        for run in runs:
            run.kill()
    local = torchrun(tmp_path, "local", "--standalone", "--nproc-per-node", "2")
    subprocess.run(local, env=environment(tmp_path / "cache"), check=True, timeout=600)
    assert_same_run(tmp_path / "local", tmp_path / "hosts")


def test_shares_follow_each_other_and_differ_by_one_at_most() -> None:
    for total in range(12):
        parts = [range(total)[Processes(rank, 5).fraction(total)] for rank in range(5)]
        assert [i for part in parts for i in part] == list(range(total))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_one_process_needs_no_messages() -> None:
    rows = torch.ones(3, 2)
    alone = Processes()
    assert alone.gather(rows, alone.lengths(3, rows.device)) is rows
    assert alone.agreed(lambda: 7) == 7
    with alone.rank_zero_first():
        alone.wait()


def test_batch_statistics_are_refused_with_advice() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match=r"several processes batch norm .* frozen_bn=stats"):
        WholeBatch(network, nn.Identity(), Processes(0, 2))


def test_shared_batch_statistics_are_not() -> None:
    several = Processes(0, 2)
    shared = sync_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert isinstance(shared[1], nn.SyncBatchNorm)
    WholeBatch(shared, nn.Identity(), several)
    with pytest.raises(ValueError, match="micro_batch=4 batch norm"):
        WholeBatch(shared, nn.Identity(), several, micro_batch=4)


class Store(dict[str, str]):
    """What the heartbeat needs of a store that all processes see."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


def test_a_silent_process_is_missed_and_a_slow_one_is_not() -> None:
    store, lost = Store(), threading.Event()
    store.set("heartbeat/1", "0")

    def note(message: str) -> None:
        assert "another process" in message
        lost.set()

    with Heartbeat(store, 0, 2, seconds=0.01, on_loss=note):
        for beat in range(10 * CHECKS):  # alive
            store.set("heartbeat/1", str(beat))
            time.sleep(0.002)
        assert not lost.is_set()
        assert lost.wait(timeout=30)  # dead


def test_a_store_that_is_gone_means_that_its_process_is() -> None:
    class Gone(Store):
        def __missing__(self, key: str) -> str:
            raise RuntimeError("connection reset")

        def get(self, key: str) -> str:  # type: ignore[override]
            return self[key]

    lost = threading.Event()
    with Heartbeat(Gone(), 0, 2, seconds=0.01, on_loss=lambda message: lost.set()):
        assert lost.wait(timeout=30)


def test_one_gpu_by_its_number_is_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with (
        pytest.raises(ValueError, match=r"device=cuda:1 is one GPU.*device=cuda$"),
        joined("cuda:1"),
    ):
        pass

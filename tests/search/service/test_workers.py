"""Several processes behind one address: counted together, replaced without a lost request."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.search.service.test_metrics import values

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def read(url: str, seconds: float = 60) -> str:
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def until_ready(url: str) -> None:
    for _ in range(600):
        try:
            read(f"{url}/ready")
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("never ready")


@contextmanager
def served(index: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = free_port()
    words = [sys.executable, "-m", "unseen", "serve", str(index), "--port", str(port)]
    process = subprocess.Popen([*words, "--workers", "2", "--per-minute", "0"])
    try:
        until_ready(f"http://127.0.0.1:{port}")
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) is not None


def children(pid: int) -> set[str]:
    """Processes that serve; Python's tracker of shared things is not one."""
    result = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
            words = (stat.parent / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(parent) == pid and b"resource_tracker" not in words:
            result.add(stat.parent.name)
    return result


def test_processes_count_together_and_are_replaced_one_by_one(index_folder: Path) -> None:
    with served(index_folder) as (process, url):
        assert read(f"{url}/health") == "ok\n"
        before, failed, done = children(process.pid), [], threading.Event()
        request = 0

        def ask() -> None:
            nonlocal request
            while not done.is_set():
                try:
                    assert json.loads(read(f"{url}/api/search/3?k=2"))["hits"]
                    request += 1
                except Exception as error:
                    failed.append(error)
                time.sleep(0.02)

        thread = threading.Thread(target=ask)
        thread.start()
        os.kill(process.pid, signal.SIGHUP)
        for _ in range(600):
            if len(now := children(process.pid)) == 2 and not now & before:
                break
            time.sleep(0.2)
        done.set()
        thread.join()
        assert len(children(process.pid)) == 2
        assert not children(process.pid) & before
        assert failed == []
        for _ in range(6):
            result = values(read(f"{url}/metrics"))
            assert result['unseen_requests_total{route="/api/search/{id}",status="2xx"}'] == request

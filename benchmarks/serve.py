"""The search page under load: python benchmarks/serve.py [--count 100000] [--seconds 300]

An index of random unit vectors (128 numbers) behind a real `unseen serve`, asked by 8 clients over
loopback for their neighbours by id, so that the network's own time is not in it: the median and the
95th percentile of the answer times, and the memory of the service over time. The clients stop after
so many seconds; each waits for its answer before it asks again.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from timing import Row, add_rows

from unseen.config import schema as configs
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.search.ingest import model_entry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

TINY = ["data.max_classes=40", "data.size=32", "epochs=1", "sampler.steps=2", "embedding_size=128"]
CLIENTS, PORT = 8, 8766


def make_index(folder: Path, count: int) -> Path:
    """A run that hardly trained, and random vectors in its name."""
    train_and_evaluate(
        prepare(configs.make(configs.override({}, TINY))), folder / "run", "benchmark"
    )
    vectors = np.random.default_rng(0).normal(size=(count, 128)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Writer.create(folder / "index", model_entry(Trained.open(folder / "run"))) as writer:
        for first in range(0, count, 2048):
            part = vectors[first : first + 2048]
            rows = [
                NewImage(
                    Metadata(f"/{first + i}.jpg", f"label {i % 50}", 1, 1), vector, b"x" * 1500
                )
                for i, vector in enumerate(part)
            ]
            writer.add(rows)
    return folder / "index"


def client(url: str, count: int, until: float, times: list[float]) -> None:
    r = random.Random(threading.get_ident())
    with httpx.Client(base_url=url, timeout=30) as request:
        while time.monotonic() < until:
            began = time.perf_counter()
            request.get(f"/api/search/{r.randint(1, count)}?k=24").raise_for_status()
            times.append(time.perf_counter() - began)


def megabytes(pid: int) -> float:
    message = Path(f"/proc/{pid}/status").read_text()
    return int(message.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rows", type=Path, help="the figures go into this file too")
    request = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        index = make_index(Path(folder), request.count)
        words = ["-m", "unseen", "serve", str(index), "--port", str(PORT), "--per-minute", "0"]
        server = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{PORT}"
            add_rows(request.rows, *load(url, server.pid, request.count, request.seconds))
        finally:
            server.terminate()
            server.wait()


def seconds_used(pid: int) -> float:
    """Of the processor, by a process."""
    message = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(message[11]) + int(message[12])) / os.sysconf("SC_CLK_TCK")


def load(url: str, pid: int, count: int, seconds: int) -> list[Row]:
    for _ in range(120):
        try:
            httpx.get(f"{url}/api/health").raise_for_status()
            break
        except httpx.TransportError:
            time.sleep(1)
    times: list[float] = []
    before = seconds_used(pid), time.process_time()
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=client, args=(url, count, until, times)) for _ in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    sizes = []
    while time.monotonic() < until:
        time.sleep(seconds / 10)
        sizes.append(megabytes(pid))
        print(f"{len(times):,} answers, {sizes[-1]:.0f} MB", flush=True)
    for thread in threads:
        thread.join()
    median, late = np.quantile(times, [0.5, 0.95]) * 1000
    print(
        f"{count:,} images, {CLIENTS} clients, {seconds} s: {len(times) / seconds:.0f} answers/s"
        f", median {median:.1f} ms, 95 % within {late:.1f} ms; "
        f"memory {sizes[0]:.0f} MB after a tenth of the time, {sizes[-1]:.0f} MB at the end"
    )
    service = 1000 * (seconds_used(pid) - before[0]) / len(times)
    clients = 1000 * (time.process_time() - before[1]) / len(times)
    spent = f"{service:.2g} ms of the service, {clients:.2g} ms of the clients"
    limit = f"{2000 / (service + clients):.3g} a second on 2 cores: an answer takes {spent}"
    print(limit)
    work, rate = f"search page, {count:,} images, {CLIENTS} clients", len(times) / seconds
    return [
        Row(f"{work}: answers", "", rate, rate, rate, 400, "a second", True, limit),
        Row(f"{work}: 95 % within", "", late, late, late, 40, "ms", False, limit),
    ]


if __name__ == "__main__":
    main()

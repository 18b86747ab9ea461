"""Two processes that `unseen train` starts by itself train the run of one, and end together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from unseen.config import batch_division as division
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.tables import Component
from unseen.data.folder import Folder
from unseen.models import activation_size
from unseen.runs import cpu_processes
from unseen.runs.prepare import RunContext
from unseen.training.distributed import Processes

ROOT = Path(__file__).parents[2]
RUN = [
    "data.max_classes=24",
    "data.size=16",
    "batch_size=15",
    "embedding_size=16",
    "epochs=30",
    "sampler.per_class=3",
    "sampler.steps=4",
    "workers=0",
    "threads=1",
    "loss=margin",
    'metrics=["recall@1"]',
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    root = tmp_path_factory.mktemp("photos")
    for number in range(8):
        (root / str(number)).mkdir()
        for copy in range(2):
            Image.new("RGB", (100, 100), (number, copy, 0)).save(root / str(number) / f"{copy}.png")
    return Folder(root)


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize(
    ("values", "number", "threads"),
    [
        ({"frozen_bn": "full"}, 2, 1),
        ({"frozen_bn": "off"}, 1, 2),
        ({"frozen_bn": "full", "threads": 2}, 1, 2),
        ({"frozen_bn": "full", "freeze_until": "pooled"}, 1, 2),
        ({"frozen_bn": "full", "manifold_mixup": True}, 1, 2),
        ({"frozen_bn": "off", "cpu_processes": 2}, 2, 1),
        ({"frozen_bn": "full", "cpu_processes": 1}, 1, 2),
    ],
)
def test_whole_networks_with_frozen_statistics_get_two_on_two_cores(
    photos: Folder, values: dict[str, Any], number: int, threads: int
) -> None:
    rest = {"data": {"name": "folder", "root": str(photos.root)}, "backbone": "resnet50"}
    rest |= {"freeze_until": None}
    resolved, _ = resolve(configs.make(rest | values), photos)
    assert (resolved.training.machine.cpu_processes, resolved.training.machine.threads) == (
        number,
        threads,
    )


@pytest.mark.usefixtures("_two_cores")
def test_a_stages_that_goes_deep_gets_two(photos: Folder) -> None:
    rest = {"data": {"name": "folder", "root": str(photos.root)}, "weights": "imagenet"}
    rest |= {"backbone": "efficientnet_lite0", "depth": "last_layers"}
    resolved, reasons = resolve(configs.make(rest), photos)
    assert (
        resolved.training.machine.cpu_processes,
        resolved.training.machine.threads,
        resolved.training.machine.workers,
    ) == (2, 1, 1)
    assert sum(reason.key == "threads" for reason in reasons) == 1


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize("number", ["auto", 2])
def test_objects_of_one_process_cannot_be_shared(photos: Folder, number: Any) -> None:
    given = {
        "backbone": "resnet50",
        "freeze_until": None,
        "frozen_bn": "full",
        "cpu_processes": number,
    }
    config = configs.make(given).with_values({"data": Component(name="object:mine:Photos")})
    if number == "auto":
        assert resolve(config, photos)[0].training.machine.cpu_processes == 1
        return
    with pytest.raises(ValueError, match="cannot see the objects"):
        resolve(config, photos)


@pytest.mark.parametrize(
    ("values", "free", "number"),
    [
        ({"frozen_bn": "full"}, None, None),
        ({"frozen_bn": "full"}, 10**12, None),
        ({"frozen_bn": "full", "batch_size": 40}, 2 * 10**9, 7),  # 1 GB for 1.5 x 86 MB each
        ({"frozen_bn": "full", "batch_size": 40, "cpu_processes": 2}, 2 * 10**9, 3),
        ({"frozen_bn": "full", "batch_size": 4}, 2 * 10**9, None),
        ({"frozen_bn": "full", "batch_size": 40}, 10**6, 1),
        ({"frozen_bn": "off", "batch_size": 40}, 10**6, None),
        ({"frozen_bn": "full", "freeze_until": "pooled", "batch_size": 40}, 10**6, None),
        ({"frozen_bn": "full", "micro_batch": 9}, 10**6, 9),
        ({"frozen_bn": "full", "micro_batch": None}, 10**6, None),
    ],
)
def test_images_are_embedded_some_at_a_time_where_memory_is_short(
    photos: Folder,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    free: int | None,
    number: int | None,
) -> None:
    monkeypatch.setattr(division, "free_memory", lambda device: free)
    monkeypatch.setattr(activation_size, "bytes_per_image", lambda *what: 86_000_000)
    rest = {"data": {"name": "folder", "root": str(photos.root)}, "backbone": "resnet50"}
    resolved, reasons = resolve(configs.make(rest | {"freeze_until": None} | values), photos)
    assert resolved.training.machine.micro_batch == number
    is_logged = any(reason.key == "micro_batch" for reason in reasons)
    assert is_logged == (number is not None and "micro_batch" not in values)


def test_free_memory_is_what_the_machine_says_or_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "CGROUP", tmp_path)
    whole = division.free_memory("cpu")
    assert whole is None or whole > 10**6
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("inactive_anon 7\ninactive_file 500\nactive_file 3\n")
    assert division.free_memory("cpu") == 2500, "copies of files are given back when asked for"
    (tmp_path / "memory.max").write_text("max\n")
    assert whole is None or (division.free_memory("cpu") or 0) > 10**6


def test_one_that_cannot_begin_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_processes, "CALL", "raise SystemExit('ValueError: no such image')")
    machine = SimpleNamespace(cpu_processes=2)
    config = SimpleNamespace(training=SimpleNamespace(machine=machine), to_toml=lambda: "")
    split = SimpleNamespace(train=np.arange(2), validation=np.arange(2), test=np.arange(2))
    split.query = split.gallery = None
    data = SimpleNamespace(fingerprint=lambda: "x")
    context = SimpleNamespace(config=config, processes=Processes(), dataset=data, split=split)
    with (
        pytest.raises(ValueError, match=r"no such image\. cpu_processes=1"),
        cpu_processes.shared(cast(RunContext, context), tmp_path, "train"),
    ):
        pass


def started(out: Path, *words: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "unseen", "train", "glyphs", *RUN, *words, "--out", str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a shell that starts the tests beside itself has them ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def ended(out: Path, *words: str) -> dict[str, torch.Tensor]:
    process = started(out, *words)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return load_file(out / "weights.safetensors")


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def steps(out: Path) -> Iterator[dict[str, Any]]:
    event_log = out / "events.jsonl"
    for line in event_log.read_text().splitlines() if event_log.exists() else ():
        if line.startswith("{") and (event := json.loads(line))["event"] == "step":
            yield event


@pytest.mark.slow
def test_two_shares_are_one_run_and_end_together(tmp_path: Path) -> None:
    one, two = ended(tmp_path / "one"), ended(tmp_path / "two", "cpu_processes=2")
    pairs = zip(steps(tmp_path / "one"), steps(tmp_path / "two"), strict=True)
    losses = [(a["terms"]["total"], b["terms"]["total"]) for a, b in pairs]
    assert len(losses) == 120
    assert all(a == pytest.approx(b, rel=0.02, abs=1e-3) for a, b in losses[:20])
    assert one.keys() == two.keys()
    for name, kill in (("share", signal.SIGKILL), ("first", signal.SIGKILL), ("asked", None)):
        out = tmp_path / name
        process = started(out, "cpu_processes=2")
        while len(list(steps(out))) < 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        (fraction,) = children(process.pid)
        if kill is None:
            process.send_signal(signal.SIGINT)
        else:
            os.kill(fraction if name == "share" else process.pid, kill)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == {"share": 2, "first": -9, "asked": 130}[name], said
        assert "Traceback" not in said
        deadline = time.monotonic() + 30
        while is_alive(fraction):
            assert time.monotonic() < deadline, f"the share outlived the end of {name}"
            time.sleep(0.1)
        again = ended(out, "cpu_processes=2")
        assert all(torch.equal(again[key], two[key]) for key in two), name

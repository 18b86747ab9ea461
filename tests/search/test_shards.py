"""Vectors in shards: the same files from one process and from Ray's workers, whoever is killed."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.core import uris
from unseen.runs.job_engines import Local, Ray
from unseen.runs.trained_run import Trained
from unseen.search import shards
from unseen.search.image_sources import find
from unseen.search.index import Index
from unseen.search.ingest import ingest, model_entry
from unseen.search.shards import begin, complete, embedded_by
from unseen.search.writer import Writer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def photos(images: Path, tmp_path: Path) -> Path:
    """Thirty images, one of them broken."""
    root = tmp_path / "photos"
    shutil.copytree(images, root)
    (root / "class 2" / "1.png").write_bytes(b"no image")
    return root


def digests(out: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(out.iterdir())}


def table(place: Any) -> Any:
    from unseen.data.images.table_file import read_arrow

    return read_arrow(place)


def test_shards_hold_what_embed_gives(model: Trained, photos: Path, tmp_path: Path) -> None:
    sources, out = find([photos]), tmp_path / "vectors"
    job = begin(model, sources, out, batch=4, shard=8)
    assert [job.count, list(job.shards)] == [30, [0, 1, 2, 3]]
    seen: list[int] = []
    lost = complete(job, out, Local(), None, lambda done, total: seen.append(done))
    assert seen == [8, 16, 24, 30]
    broken = str(photos / "class 2" / "1.png")
    assert lost == [(11, broken, "not an image")]
    assert table(out / "unreadable.parquet").to_pylist() == [
        {"id": 11, "path": broken, "reason": "not an image"}
    ]
    rows = [r for shard in range(4) for r in table(out / f"shard-0000{shard}.parquet").to_pylist()]
    assert [row["id"] for row in rows] == [i for i in range(30) if i != 11]
    good = [sources[row["id"]] for row in rows]
    assert [(row["path"], row["label"]) for row in rows] == [(str(s.path), s.label) for s in good]
    expected = model.embed([source.image for source in good]).numpy()
    assert np.array([row["vector"] for row in rows]) == pytest.approx(expected, abs=1e-6)
    kind = table(out / "shard-00000.parquet").schema.field("vector").type
    assert str(kind) == "fixed_size_list<element: float>[16]"


def test_a_stopped_job_goes_on_and_another_is_refused(
    model: Trained, photos: Path, tmp_path: Path
) -> None:
    sources, out = find([photos]), tmp_path / "vectors"
    complete(begin(model, sources, out, batch=4, shard=8), out, Local(), None)
    whole = digests(out)
    for name in ("shard-00001.parquet", "unreadable.parquet"):
        (out / name).unlink()
    before = (out / "shard-00000.parquet").stat().st_mtime_ns
    complete(begin(model, sources, out), out, Local(), None)
    assert digests(out) == whole
    assert (out / "shard-00000.parquet").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="of another model or of other images"):
        begin(model, sources[1:], out)


@pytest.mark.usefixtures("memory_uris")
def test_shards_at_an_address(model: Trained, photos: Path, tmp_path: Path) -> None:
    sources = find([photos])
    for out in (tmp_path / "vectors", "memory://vectors"):
        complete(begin(model, sources, out, batch=4, shard=16), out, Local(), None)
    for name, digest in digests(tmp_path / "vectors").items():
        content = uris.read(f"memory://vectors/{name}")
        assert hashlib.sha256(content).hexdigest() == digest


def test_the_batch_is_measured(
    model: Trained, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    took = {16: 1.0, 32: 1.2, 64: 2.0, 128: 3.9, 256: 8.0}

    def vectors(images: Any) -> None:
        now[0] += took[len(images)] / 10

    monkeypatch.setattr(Trained, "vectors", lambda self, images: vectors(images))
    monkeypatch.setattr(shards.time, "perf_counter", lambda: now[0])
    assert shards.fastest_batch(model, find([photos])) == 64, "128 is hardly faster"


def test_an_index_by_shards_is_the_index(model: Trained, photos: Path, tmp_path: Path) -> None:
    sources, aside = find([photos]), tmp_path / "i.shards"
    for name, embed in (
        ("plain", None),
        ("shared", partial(embedded_by, aside=aside, engine=Local(), size=None)),
    ):
        with Writer.create(tmp_path / name, model_entry(model)) as writer:
            done = ingest(writer, model, sources, embed=embed)
        assert done.added == 29
        assert [line.split(" (")[1] for line in done.unreadable] == ["not an image)"]
    plain, shared = Index.open(tmp_path / "plain"), Index.open(tmp_path / "shared")
    assert list(plain.every()) == list(shared.every())
    ids = plain.ids.tolist()
    assert shared.vectors(ids) == pytest.approx(plain.vectors(ids), abs=1e-6)
    assert [plain.thumbnail(i) for i in ids] == [shared.thumbnail(i) for i in ids]
    assert not aside.exists()


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"Ray needs ray: .*cluster"):
        list(Ray().run(lambda: lambda shard: shard, [1]))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six hundred images in class folders, two of them broken."""
    root = tmp_path_factory.mktemp("many")
    noise = np.random.default_rng(0).integers(0, 255, (600, 24, 24, 3), dtype=np.uint8)
    for row, pixels in enumerate(noise):
        (root / f"{row % 10}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(root / f"{row % 10}" / f"{row:03d}.png")
    for name in ("3/333.png", "7/007.png"):
        (root / name).write_bytes(b"")
    return root


def command(run: Path, many: Path, out: Path) -> list[str]:
    words = ["embed", str(run), str(many), "--out", f"{out}/", "--shard", "8"]
    return [sys.executable, "-m", "unseen", *words]


ON_RAY = ["--ray", "start", "--workers", "2"]


@pytest.fixture(scope="module")
def expected(run: Path, many: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of one process, and the batch it has chosen."""
    out = tmp_path_factory.mktemp("expected") / "vectors"
    complete(begin(Trained.open(run), find([many]), out, batch=8, shard=8), out, Local(), None)
    return digests(out)


def family(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that a process has started, and theirs: number and name."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(words[1]), (entry / "cmdline").read_bytes())
            except OSError:
                continue
    wanted = {pid}
    while more := {child for child, (above, _) in parents.items() if above in wanted} - wanted:
        wanted |= more
    yield from ((each, parents[each][1].decode(errors="replace")) for each in wanted - {pid})


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["nobody", "worker", "driver", "node"])
def test_whoever_is_killed_nothing_is_lost_or_there_twice(
    victim: str, run: Path, many: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    out = tmp_path / "vectors"
    begin(Trained.open(run), find([many]), out, batch=8, shard=8)
    words = [*command(run, many, out), *ON_RAY]
    started = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    names = {"worker": "MapWorker", "node": "raylet/raylet"}
    while victim != "nobody" and started.poll() is None:
        if len(list(out.glob("shard-*"))) >= 5:
            below = dict(family(started.pid))
            mine = [pid for pid, name in below.items() if names.get(victim, "-") in name]
            os.kill(started.pid if victim == "driver" else mine[0], signal.SIGKILL)
            break
        time.sleep(0.02)
    message = started.communicate(timeout=600)[0].decode()
    made = len(list(out.glob("shard-*")))
    if victim in ("nobody", "worker"):
        assert (started.returncode, made) == (0, 75), message
    else:
        assert started.returncode != 0
        assert made < 75, "it was killed in the middle"
        again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
    assert digests(out) == expected


@pytest.mark.slow
def test_features_and_indexes_on_ray(run: Path, many: Path, tmp_path: Path) -> None:
    for name, engine in (("plain", []), ("shared", ON_RAY)):
        for words in (
            ["index", "build", str(run), str(many), "--out", str(tmp_path / name)],
            [
                "data",
                "features",
                str(many),
                "--out",
                str(tmp_path / f"{name}.npz"),
                "image_size=32",
            ],
        ):
            subprocess.run([sys.executable, "-m", "unseen", *words, *engine], cwd=ROOT, check=True)
    plain, shared = (np.load(tmp_path / f"{name}.npz") for name in ("plain", "shared"))
    assert plain["features"] == pytest.approx(shared["features"], abs=1e-5)
    one, two = Index.open(tmp_path / "plain"), Index.open(tmp_path / "shared")
    assert list(one.every()) == list(two.every())
    ids = one.ids.tolist()
    assert one.vectors(ids) == pytest.approx(two.vectors(ids), abs=1e-5)

"""From image files to answers: what goes in, what is passed over, what is refused."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.runs.trained_run import Trained
from unseen.search.index import Index
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.maintain import model_of, named, rebuild, update
from unseen.search.verify import verify
from unseen.search.writer import Writer


def built(path: Path, model: Trained, *places: Path) -> Path:
    with Writer.create(path, model_entry(model)) as writer:
        ingest(writer, model, find(places))
    return path


def test_images_find_themselves(tmp_path: Path, model: Trained, images: Path) -> None:
    index = Index.open(built(tmp_path / "i", model, images))
    paths = sorted(images.rglob("*.png"))
    assert len(index) == 30
    result = index.search(model.embed(paths), k=1)
    assert [index.image(i).path for i in result.ids[:, 0]] == [str(p.resolve()) for p in paths]
    assert result.similarities[:, 0] == pytest.approx(1, abs=1e-5)
    assert index.labels == {f"class {c}": 5 for c in range(6)}
    thumbnail = index.thumbnail(1)
    assert thumbnail[:4] == b"RIFF"
    assert thumbnail[8:12] == b"WEBP"


def test_a_thumbnail_is_the_image_without_borders(tmp_path: Path, model: Trained) -> None:
    Image.new("RGB", (300, 150), "black").save(tmp_path / "wide.png")
    index = Index.open(built(tmp_path / "i", model, tmp_path / "wide.png"))
    thumbnail = Image.open(io.BytesIO(index.thumbnail(1)))
    assert thumbnail.size == (128, 64)
    assert np.asarray(thumbnail).max() < 20, "nothing white around it"


def test_vectors_of_paths_images_and_arrays_agree(model: Trained, images: Path) -> None:
    paths = sorted(images.rglob("*.png"))[:3]
    opened = [Image.open(path).convert("RGB") for path in paths]
    by_path = model.embed(paths)
    assert torch.equal(by_path, model.embed(opened))
    assert torch.equal(by_path, model.embed([np.asarray(image) for image in opened]))
    assert torch.equal(by_path, model.embed([path.read_bytes() for path in paths]))
    assert by_path.norm(dim=1).tolist() == pytest.approx([1, 1, 1])
    assert model.embed([]).shape == (0, 16)
    with pytest.raises(ValueError, match="uint8 array"):
        model.embed([np.zeros((4, 4, 7), dtype=np.uint8)])
    assert torch.equal(model.embed(paths[0]), model.embed(paths[:1])[0])


def test_what_is_there_is_passed_over_and_broken_files_are_reported(
    tmp_path: Path, model: Trained, images: Path
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(images, photos)
    (photos / "class 1" / "broken.jpg").write_bytes(b"not an image")
    os.mkfifo(photos / "class 1" / "pipe.png")
    shutil.copyfile(
        next((photos / "class 0").iterdir()), os.fsencode(photos / "class 1") + b"/\xff.png"
    )
    path = tmp_path / "i"
    with Writer.create(path, model_entry(model)) as writer:
        done = ingest(writer, model, find([photos / "class 0", photos / "class 1"]))
    assert (done.added, done.same, len(done.unreadable)) == (10, 0, 3)
    message = " ".join(done.unreadable)
    assert "broken.jpg (not an image)" in message
    assert "pipe.png (a pipe, socket or device, not a file)" in message
    assert "\\xff.png (its name is not UTF-8: rename it)" in message
    heard: list[tuple[int, int]] = []
    with Writer.open(path) as writer:
        done = ingest(writer, model, find([photos]), lambda *message: heard.append(message))
    assert (done.added, done.same) == (20, 10)
    assert heard[-1] == (33, 33)
    assert Index.open(path).labels["class 5"] == 5
    assert "class 0" not in Index.open(path).labels  # its folder was the root: no class above it


def test_parts_of_images_are_images_of_their_own(
    tmp_path: Path, model: Trained, images: Path
) -> None:
    """A table with boxes: each row is embedded, found, kept and renewed as the part it names."""
    paths = sorted(images.rglob("*.png"))[:2]
    pair = np.concatenate([np.asarray(Image.open(path)) for path in paths], axis=1)
    Image.fromarray(pair).save(tmp_path / "pair.png")
    rows = ["path,label,x,y,w,h", "pair.png,left,0,0,60,60", "pair.png,right,60,0,60,60"]
    (tmp_path / "boxes.csv").write_text("\n".join([*rows, "pair.png,,,,,"]))
    path = built(tmp_path / "i", model, tmp_path / "boxes.csv")
    index = Index.open(path)
    result = index.search(model.embed(paths), k=1)
    assert [index.image(id).label for id in result.ids[:, 0]] == ["left", "right"]
    assert result.similarities[:, 0] == pytest.approx(1, abs=1e-5)
    boxes = [metadata.box for _, metadata in index.every()]
    assert boxes == [(0, 0, 60, 60), (60, 0, 120, 60), None]
    assert named(index, [str(tmp_path / "pair.png")]) == [1, 2, 3]
    vectors = index.vectors()
    with Writer.open(path) as writer:
        removed, done = update(writer, model, find([tmp_path / "boxes.csv"]))
    assert (removed, done.added, done.changed, done.same) == (0, 0, 0, 3)
    rebuild(path, model)
    assert verify(path) == []
    assert np.allclose(Index.open(path).vectors(), vectors, atol=1e-6)
    (tmp_path / "none.csv").write_text("file\npair.png\n")
    with pytest.raises(ValueError, match="has no column path, it has file"):
        find([tmp_path / "none.csv"])


def test_update_follows_the_files(tmp_path: Path, model: Trained, images: Path) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(images, photos)
    path = built(tmp_path / "i", model, photos)
    changed, gone = photos / "class 0" / "0.png", photos / "class 3" / "2.png"
    ids = {metadata.path: id for id, metadata in Index.open(path).every()}
    Image.new("RGB", (50, 50), "navy").save(changed)
    os.utime(changed, ns=(1, 1))
    gone.unlink()
    Image.new("RGB", (50, 50), "red").save(photos / "class 4" / "new.png")
    with Writer.open(path) as writer:
        removed, done = update(writer, model, find([photos]))
    assert (removed, done.added, done.changed, done.same) == (1, 1, 1, 28)
    index = Index.open(path)
    result = index.search(model.embed([changed]), k=1)
    assert result.ids.tolist() == [[ids[str(changed.resolve())]]]
    assert result.similarities[0, 0] == pytest.approx(1, abs=1e-5)
    assert verify(path) == []
    assert named(index, [str(photos / "class 4")]).__len__() == 6
    assert named(index, ["1"]) == [1]
    with pytest.raises(ValueError, match="holds no image elsewhere"):
        named(index, ["elsewhere"])


def test_another_model_is_refused_and_rebuild_takes_it(
    tmp_path: Path, model: Trained, run: Path, images: Path
) -> None:
    path = built(tmp_path / "i", model, images)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    changed = Trained.open(other)
    with torch.no_grad():
        changed.network.head.fc1.weight.mul_(-1)
    changed.folder.write_tensors("weights.safetensors", changed.network.state_dict())
    changed = Trained.open(other)
    with Writer.open(path) as writer, pytest.raises(ValueError, match="unseen index rebuild"):
        ingest(writer, changed, find([images]))
    before = {metadata.path: id for id, metadata in Index.open(path).every()}
    done = rebuild(path, changed)
    assert done.added == 30
    assert {metadata.path: id for id, metadata in Index.open(path).every()} == before
    assert verify(path) == []
    assert model_of(path).fingerprint == changed.fingerprint
    with Writer.open(path) as writer:
        assert ingest(writer, changed, find([images])).same == 30


# Loads once; every line on its input starts a child that adds, and says when something is on disk.
ADDING = """
import os, sys
from pathlib import Path
import torch
from unseen.runs.trained_run import Trained
from unseen.search import ingest, writer
torch.set_num_threads(1)
ingest.COMMIT = ingest.BATCH = 4
writer.FANOUT, writer.FIRST_TIER = 3, 4
model, index = Trained.open(sys.argv[1]), Path(sys.argv[2])
entry, sources = ingest.model_entry(model), ingest.find([Path(sys.argv[3])])
for _ in sys.stdin:
    child = os.fork()
    if not child:
        exists = (index / "manifest.json").exists()
        with writer.Writer.open(index) if exists else writer.Writer.create(index, entry) as w:
            ingest.ingest(w, model, sources, lambda done, total: print(done, flush=True))
        os._exit(0)
    print("child", child, flush=True)
    _, status = os.waitpid(child, 0)
    print("ended", status, flush=True)
"""


def killed(run: Path, index: Path, images: Path, times: int, seed: int) -> int:
    """Adds in another process and kills it, again and again; returns how often that happened."""
    generator = np.random.default_rng(seed)
    kills = 0
    words = [sys.executable, "-c", ADDING, str(run), str(index), str(images)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(times):
            if index.exists() and generator.random() < 0.2:
                shutil.rmtree(index)
            print(file=parent.stdin, flush=True)
            acknowledged = 0
            while (message := parent.stdout.readline().split())[0] != "child":
                acknowledged = int(message[0])  # a child may be faster than its parent
            child = int(message[1])
            time.sleep(float(generator.exponential(0.15)))
            with contextlib.suppress(ProcessLookupError):  # it was already done
                os.kill(child, signal.SIGKILL)
            while (message := parent.stdout.readline().split())[0] != "ended":
                acknowledged = int(message[0])
            kills += message[1] == str(int(signal.SIGKILL))
            if (index / "manifest.json").exists() or acknowledged:
                assert verify(index) == []
                assert len(Index.open(index)) >= acknowledged
    return kills


def test_a_killed_writer_loses_nothing_it_acknowledged(
    tmp_path: Path, run: Path, images: Path
) -> None:
    assert killed(run, tmp_path / "i", images, times=3, seed=0) > 0


@pytest.mark.slow
def test_killed_fifty_times(tmp_path: Path, run: Path, images: Path) -> None:
    photos = tmp_path / "photos"
    for copy in range(8):
        shutil.copytree(images, photos / f"{copy}")
    assert killed(run, tmp_path / "i", photos, times=50, seed=1) > 30

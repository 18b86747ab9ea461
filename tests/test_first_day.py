"""The first day of a newcomer, command by command: from a messy folder to a page that is searched.

Every message it meets is one somebody would want: what was left out, what a folder is taken for,
what a mistake was, what comes next. The notebooks are run by `test_notebooks.py`.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pillow_heif
import pytest
from PIL import Image

import unseen

QUICK = ["backbone=small_conv", "image_size=32", "epochs=4", "sampler.steps=6"]
QUICK += ["embedding_size=16", "threads=1"]
TOKEN = "a-long-enough-word"


def image(seed: int, c: int, size: tuple[int, int] = (48, 40)) -> Image.Image:
    """A class is a colour and a slope."""
    draw, of_class = np.random.default_rng(seed), np.random.default_rng(c)
    color, slope = of_class.uniform(50, 200, 3), of_class.uniform(-50, 50, 2)
    across = np.linspace(-1, 1, size[0])[None, :, None] * slope[0]
    down = np.linspace(-1, 1, size[1])[:, None, None] * slope[1]
    pixels = color + across + down + draw.normal(0, 10, (size[1], size[0], 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as people have it: twelve classes, and what else lies around."""
    monkeypatch.chdir(tmp_path)
    for c in range(12):
        (tmp_path / "my photos" / f"kind {c:02d}").mkdir(parents=True)
        for i in range(8):
            image(100 * c + i, c).save(tmp_path / "my photos" / f"kind {c:02d}" / f"{i}.jpg")
    messy = tmp_path / "my photos"
    image(1, 0).save(messy / "stray.jpg")
    (messy / ".DS_Store").write_bytes(b"x")
    (messy / "empty").mkdir()
    (messy / "kind 00" / "broken.jpg").write_bytes(b"not an image")
    pillow_heif.from_pillow(image(7, 1)).save(messy / "kind 01" / "telephone.heic")
    image(8, 2).save(messy / "kind 02" / "new.avif")
    return tmp_path


def say(*words: object, code: int = 0) -> str:
    """A command as it is typed; what it prints, and on a mistake its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "unseen", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "80"},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code == 2:
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stdout + done.stderr


@contextmanager
def serving(index: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", str(index), "--port", str(port), "--token", TOKEN]
    with subprocess.Popen(
        [sys.executable, "-m", "unseen", *words], stdout=subprocess.DEVNULL
    ) as on:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                with suppress(OSError), urllib.request.urlopen(address) as page:
                    assert page.status == 200
                    break
                assert on.poll() is None, "the service ended"
                time.sleep(0.2)
            yield address
        finally:
            on.terminate()


@pytest.mark.slow
def test_from_a_messy_folder_to_a_page(home: Path) -> None:
    message = say("data", "check", "my photos", code=1)
    for words in (
        "not_image: 1",
        "left out, images that lie in no class folder: 1 (stray.jpg)",
        "left out, folders without images: 1 (empty)",
        "left out, files that are no images by their names: 1 (.DS_Store)",
    ):
        assert words in message
    assert "did you mean" in say("train", "my photos", *QUICK, "los=margin", code=2)
    assert "no such file or folder: my_photos" in say("train", "my_photos", code=2)
    assert "device=cuda" in say("train", "my photos", *QUICK, "device=cuda", code=2)
    message = say("train", "my photos", *QUICK)
    assert "98 images of 12 classes" in message
    assert "cannot be read, left out: my photos/kind 00/broken.jpg (not an image)" in message
    run = next((home / "runs").iterdir())
    assert run.name == "my photos-multi_similarity-seed0"
    message = say("train", "my photos", *QUICK, "lr=0.002")
    assert (home / "runs" / "my photos-multi_similarity-seed0-lr0.002").is_dir()
    assert "R@1" in say("evaluate", "run", run)
    message = say("inspect", "diagnose", run)
    assert "unseen classes: what follows is rough" in message
    assert "R@1" in say(
        "evaluate", "compare", run, home / "runs" / "my photos-multi_similarity-seed0-lr0.002"
    )
    assert (run / "report" / "index.html").exists()
    say("report", run)

    say("embed", run, "my photos", "--out", "x.npz")
    assert "R@1" in say("evaluate", "embeddings", "x.npz")
    say("embed", run, "my photos", "--out", "x.npy")
    assert np.load("x.npy").shape == (99, 16)
    rows = ["path,label,bbox", '"my photos/kind 03/0.jpg",left,"0,0,24,40"']
    (home / "boxes.csv").write_text("\n".join([*rows, '"my photos/kind 04/0.jpg",,""']))
    say("index", "build", run, "my photos", "boxes.csv", "--out", "my.index")
    query = "my photos/kind 05/3.jpg"
    answer = json.loads(say("search", "my.index", query, "--json"))
    assert answer["hits"][0]["path"] == str((home / query).resolve())
    say("search", "my.index", query, "--box", "0,0,48,40")
    say("export", run, "--bundle", "bundle")
    with serving(home / "my.index") as address:
        head = {"authorization": f"Bearer {TOKEN}"}
        result = httpx.post(
            f"{address}/api/search", files={"file": Path(query).read_bytes()}, headers=head
        )
        assert result.status_code == 200, result.text
        assert result.json()["hits"][0]["similarity"] > 0.99
    sources = say("catalogue", "losses")
    assert "generalized_lifted" in sources


@pytest.mark.slow
def test_layouts_of_others(home: Path) -> None:
    for part in ("train", "val"):
        for c in range(8):
            folder = home / "kaggle" / part / f"c{c}"
            folder.mkdir(parents=True)
            for i in range(4):
                image(100 * c + i, c).save(folder / f"{part}{i}.png")
    message = say("train", "kaggle", *QUICK, "--out", "runs/kaggle")
    assert "train, val put together and divided by class (8 of 8 classes" in message
    for c in range(8):
        folder = home / "shop" / f"category {c % 2}" / f"product {c}"
        folder.mkdir(parents=True)
        for i in range(4):
            image(100 * c + i, c).save(folder / f"{i}.png")
    message = say("train", "shop", *QUICK, "data.levels=2", "--out", "runs/shop")
    assert "8 classes (category 0/product 0, category 0/product 2, " in message
    message = say("train", "shop", *QUICK, "--out", "runs/leaves")
    assert "8 classes (category 0/product 0, category 0/product 2, " in message
    assert "data.levels=1 takes the 2 folders of the first level" in message
    run = unseen.load("runs/shop")
    assert run.embed(image(1, 1)).shape == (16,)
    (home / "elsewhere").mkdir()
    os.chdir(home / "elsewhere")
    assert "R@1" in say("evaluate", "run", home / "runs" / "shop")

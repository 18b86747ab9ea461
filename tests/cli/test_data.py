"""`unseen data check`, `show` and `pack` on small folders."""

import hashlib
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main
from unseen.data.folder import Folder
from unseen.data.images import item_digests


def unseen(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for c in range(8):
        folder = tmp_path / "photos" / f"class {c}"
        folder.mkdir(parents=True)
        for k in range(4):
            coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3)).astype(np.uint8))
            coarse.resize((128, 96), Image.Resampling.BICUBIC).save(folder / f"{k}.png")
    return tmp_path / "photos"


def test_check_a_clean_folder(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    code, text, _ = unseen(capsys, "data", "check", str(photos))
    assert code == 0
    assert "32 files, 32 usable, 8 classes (class 0, class 1, class 2 and 5 more)\n" in text
    assert "m_per_class" in text
    for folder in (photos / "a" / "b" / "fox", photos / "class 0"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "broken.jpg").write_text("no image")
    code, text, _ = unseen(capsys, "data", "check", str(photos))
    assert code == 1
    assert "34 files, 32 usable, 8 classes (class 0, class 1, class 2 and 5 more)\n" in text
    assert "1 class has only files that cannot be read, and does not count: a/b/fox" in text


def test_check_reads_every_file_anew(
    capsys: pytest.CaptureFixture[str], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of a file that changed and has its old times is wrong until then."""
    monkeypatch.setattr(item_digests, "_YOUNG", 0)
    first = photos / "class 0" / "0.png"
    item_digests.learn(photos, {first: b"x" * 32})
    assert Folder(photos).digests()[0] == b"x" * 32
    assert unseen(capsys, "data", "check", str(photos))[0] == 0
    assert Folder(photos).digests()[0] == hashlib.sha256(first.read_bytes()).digest()


def test_check_names_what_is_wrong(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    (photos / "class 0" / "bad.jpg").write_text("no image")
    cut = photos / "class 1" / "0.png"
    cut.write_bytes(cut.read_bytes()[:800])
    for c in range(8):  # in every class: on both sides, whatever the split
        (photos / f"class {c}" / "same.png").write_bytes(
            (photos / "class 2" / "2.png").read_bytes()
        )
    fix = tmp_path / "clean.csv"
    code, text, _ = unseen(capsys, "data", "check", str(photos), "--fix", str(fix))
    assert code == 1
    for words in ("bad.jpg", "0.png", "both sides of the split", "several labels", "clean.csv"):
        assert words in text, words
    assert "clean.csv` trains on them" in text
    assert fix.read_text().startswith("path,label")
    code, text, _ = unseen(capsys, "data", "check", str(photos), "--json")
    message = json.loads(text)
    assert code == 1
    assert message["files"] == 41
    assert message["usable"] == 39
    assert len(message["exact_copies_across_split"]) == 1


def test_harmless_copies_are_named_too(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    twin = photos / "class 2" / "twin.png"
    twin.write_bytes((photos / "class 2" / "2.png").read_bytes())
    code, text, _ = unseen(capsys, "data", "check", str(photos))
    assert code == 0
    assert "1 group of 2 images" in text
    assert "twin.png" in text


def test_pillow_does_not_talk_in_between(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    bomb = photos / "class 0" / "bomb.bmp"
    Image.new("1", (8, 8)).save(bomb)
    content = bytearray(bomb.read_bytes())
    content[18:26] = struct.pack("<ii", 10_000, 12_000)  # Pillow warns from 89 million pixels on
    bomb.write_bytes(content)
    code, text, errors = unseen(capsys, "data", "check", str(photos))
    assert code == 1
    assert "huge" in text
    assert "Warning" not in text + errors


def test_check_without_enough_classes_for_a_split(
    capsys: pytest.CaptureFixture[str], photos: Path
) -> None:
    for c in range(3):
        (photos / f"class {c}").rename(photos.parent / f"away {c}")
    code, text, _ = unseen(capsys, "data", "check", str(photos))
    assert code == 0
    assert "not looked at across the split" in text
    assert "20 files" in text


def test_check_needs_images(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, message = unseen(capsys, "data", "check", "glyphs", "data.max_classes=10")
    assert code == 2
    assert "no image files" in message


@pytest.mark.parametrize("transform", ["base", "density"])
def test_show_writes_a_sheet(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path, transform: str
) -> None:
    out = tmp_path / "sheet.png"
    words = [f"transform={transform}", "--out", str(out), "--images", "2"]
    code, text, _ = unseen(capsys, "data", "show", str(photos), *words)
    assert code == 0, text
    assert "at 224 pixels" in text
    with Image.open(out) as sheet:
        assert sheet.size == (8 * (224 + 6) + 6, 16 + 2 * (224 + 16 + 6))
        evaluated = np.asarray(sheet)[
            16 + 112, 6 + 230 + 112
        ]  # the middle of the first evaluated one
    with Image.open(photos / "class 0" / "0.png") as image:
        middle = np.asarray(image.convert("RGB"))[48, 64]
    assert np.abs(evaluated.astype(int) - middle).max() < 12
    code, _, message = unseen(capsys, "data", "show", str(photos), "transform=bsae")
    assert code == 2
    assert "transform must be one of" in message


def test_pack_check_and_train(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "photos.pack"
    words = ["data", "pack", str(photos), "--short-side", "64", "--out", str(out)]
    code, text, _ = unseen(capsys, *words)
    assert code == 0, text
    assert "32 images in" in text
    assert "as JPEG" in text
    assert unseen(capsys, *words)[0] == 0  # complete already
    assert unseen(capsys, "data", "check", str(out))[0] == 0
    run = tmp_path / "run"
    small = ["epochs=1", "sampler.steps=1", "batch_size=4", "embedding_size=8"]
    code, text, _ = unseen(capsys, "train", str(out), *small, "--out", str(run))
    assert code == 0, text
    assert json.loads((run / "result.json").read_text())["data"]["name"] == "photos"
    content = bytearray(out.read_bytes())
    content[len(content) // 2] ^= 1
    out.write_bytes(content)
    code, text, _ = unseen(capsys, "data", "check", str(out))
    assert code == 1
    assert "checksum" in text

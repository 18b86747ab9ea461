"""From a run to answers with commands alone; mistakes get one line."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.cli import cluster, main
from unseen.config import schema as configs
from unseen.evaluation.user_embeddings import read_items
from unseen.runs.calibrate_run import why_impossible
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.training.manifest import VERSION
from unseen.training.run_folder import RunFolder

TINY = [
    "data.max_classes=40",
    "epochs=1",
    "sampler.steps=5",
    "batch_size=16",
    "embedding_size=16",
    "workers=0",
]
pytestmark = pytest.mark.usefixtures("narrow_network")


def unseen(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, output, errors of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture(scope="module")
def trained(narrow_network: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, for tests that copy it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    train_and_evaluate(prepare(configs.make(configs.override({}, TINY))), out, "test")
    return out


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for c in range(3):
        (root / f"kind {c}").mkdir()
        for i in range(3):
            pixels = generator.normal(60 + 60 * c, 20, (40, 50, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"kind {c}" / f"{i}.jpg")
    return root


def test_from_a_run_to_an_answer(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    photos: Path,
) -> None:
    run, index = tmp_path / "run", tmp_path / "my.index"
    assert unseen(capsys, "train", "glyphs", *TINY, "--out", run)[0] == 0
    code, text, _ = unseen(capsys, "embed", run, photos, "--out", tmp_path / "x.npz")
    assert code == 0
    result = "3 labels (kind 0, kind 1, kind 2)"
    assert text == f"{result}\n9 vectors of 16 numbers: {tmp_path / 'x.npz'}\n"
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["vectors"].shape == (9, 16)
        assert arrays["labels"].tolist()[0] == "kind 0"
        vectors = arrays["vectors"]
    for name in ("x.csv", "x.parquet"):
        assert unseen(capsys, "embed", run, photos, "--out", tmp_path / name)[0] == 0
        items = read_items(tmp_path / name)
        np.testing.assert_array_equal(items.embeddings.astype(np.float32), vectors)
        assert items.labels is not None
        assert items.labels[0] == "kind 0"

    shutil.copytree(photos, tmp_path / "nested" / "old")
    shutil.copytree(photos, tmp_path / "nested" / "new")
    deep = ("index", "build", run, tmp_path / "nested", "--out")
    code, text, _ = unseen(capsys, *deep, tmp_path / "deep.index")
    assert code == 0
    assert text.startswith("6 labels (new/kind 0, new/kind 1, new/kind 2 and 3 more)\n")
    assert "--levels 1 takes the 2 folders of the first level (new, old)" in text
    assert "different classes: kind 0 (new/kind 0, old/kind 0), kind 1" in text
    code, text, _ = unseen(capsys, *deep, tmp_path / "one.index", "--levels", "1")
    assert text.startswith("2 labels (new, old)\nadded 18;")

    code, text, _ = unseen(capsys, "index", "build", run, photos / "kind 0", "--out", index)
    assert code == 0
    assert text.startswith("0 labels; 3 images have none\n")
    assert "holds 3 images" in text
    code, text, _ = unseen(capsys, "index", "add", index, photos)
    assert "added 6, 3 were there" in text
    query = photos / "kind 2" / "1.jpg"
    code, text, _ = unseen(capsys, "search", index, query, "-k", "2")
    assert code == 0
    assert text.splitlines()[0].split() == ["similarity", "label", "path"]
    assert text.splitlines()[1].endswith(f"  kind 2  {query.resolve()}")  # can be copied
    assert "unseen calibrate" in text
    with Image.open(query) as opened:
        width, height = opened.size
    code, text, _ = unseen(capsys, "search", index, query, "--box", f"0,0,{width},{height}")
    assert text.splitlines()[1].endswith(f"  kind 2  {query.resolve()}")
    code, text, _ = unseen(capsys, "search", index, query, "--where", "level_1 <> 'kind 2'")
    assert (code, "kind 1" in text, "kind 2" in text.splitlines()[1]) == (0, True, False)
    code, _, errors = unseen(capsys, "search", index, query, "--where", "prize < 3")
    assert (code, "no such column: prize" in errors, errors.count("\n")) == (2, True, 1)
    assert "file_name, label, level_1" in unseen(capsys, "index", "info", index)[1]
    code, _, errors = unseen(capsys, "search", index, query, "--box", "1,2,0,4")
    assert (code, "--box must be x,y,width,height" in errors) == (2, True)
    code, text, _ = unseen(capsys, "search", index, query, "--rerank", "local", "-k", "2")
    assert (code, text.splitlines()[1].endswith(str(query.resolve()))) == (0, True)
    (tmp_path / "words.jpg").write_text("words")
    words = ["index", "build", run, tmp_path / "words.jpg", "--out", tmp_path / "empty.index"]
    code, _, errors = unseen(capsys, *words)
    assert (code, "empty.index would be empty" in errors) == (2, True)
    code, text, _ = unseen(capsys, "inspect", "refine", run)
    assert code == 0
    assert "R@1" in text
    assert "recall@1" not in text

    code, text, _ = unseen(capsys, "calibrate", run, "--fmr", "0.1")
    assert code == 0
    assert "with 95% confidence" in text
    assert "Reliability curve" in (run / "report" / "index.html").read_text()
    code, text, _ = unseen(
        capsys, "search", index, query, "-k", "2", "--json", "--html", tmp_path / "a.html"
    )
    answer = json.loads(text)
    assert answer["hits"][0]["path"] == str(query.resolve())
    assert answer["hits"][0]["similarity"] == pytest.approx(1, abs=1e-4)
    assert 0 < answer["hits"][0]["probability"] < 1
    assert answer["decision"] in ("kind 2", "several labels", "unknown")
    assert answer["compared_twice"] == 0  # so few are compared in floats alone
    assert (tmp_path / "a.html").exists()

    assert "removed 2 images, 7 stay" in unseen(capsys, "index", "remove", index, query, "1")[1]
    code, text, _ = unseen(capsys, "index", "verify", index)
    assert code == 0
    assert "7 images, all as they were written" in text
    table, copy = tmp_path / "table.parquet", tmp_path / "copy.index"
    words = ["index", "export", index, "--to", "parquet", "--out", table]
    assert "--table is the name" in unseen(capsys, *words, "--table", "t")[2]
    assert f"7 images of {index}: {table}" in unseen(capsys, *words)[1]
    assert "exists already" in unseen(capsys, *words)[2]
    words = ["index", "import", table, "--from", "parquet", "--out", copy]
    assert f"{copy} holds 7 images" in unseen(capsys, *words)[1]
    words = ["index", "import", "none", "--from", "parquet", "--out", copy]
    code, _, errors = unseen(capsys, *words)
    assert (code, "no such file or folder: none" in errors) == (2, True)
    code, text, _ = unseen(capsys, "index", "upgrade", index, "--run", run)
    assert (code, f"{index} is of {run}; 0 of its vectors are compatible" in text) == (0, True)
    code, text, _ = unseen(capsys, "index", "update", index, photos)
    assert code == 0
    assert "added 2" in text
    code, text, _ = unseen(capsys, "index", "rebuild", index)
    assert code == 0
    assert "holds 9 images" in text

    code, text, _ = unseen(capsys, "index", "info", index)
    assert code == 0
    assert "9 images, 3 labels" in text
    assert "finds all of the nearest" in text

    pages = tmp_path / "groups"
    monkeypatch.setattr(cluster, "NAMED", 1)
    code, text, _ = unseen(capsys, "index", "cluster", index, "--groups", "3", "--out", pages)
    assert code == 0
    assert "3 groups" in text
    assert f"  ... and 2 more groups, all in {pages / 'groups.csv'}\n" in text
    assert (pages / "group-003.html").exists()
    assert len((pages / "groups.csv").read_text().splitlines()) == 10
    code, text, _ = unseen(
        capsys, "index", "cluster", index, "--link", "calibrated", "--out", pages
    )
    assert code == 0

    vectors = next(index.rglob("vectors.npy"))
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-1] + bytes([whole[-1] ^ 4]))
    code, text, _ = unseen(capsys, "index", "verify", index)
    assert code == 1
    assert "vectors.npy is damaged" in text
    assert "delete the index" in text
    vectors.write_bytes(whole)

    smaller, replaced = sorted(photos.glob("kind */0.jpg"), key=lambda file: file.stat().st_size)[
        :2
    ]
    before, content = replaced.stat(), replaced.read_bytes()
    replaced.write_bytes(smaller.read_bytes().ljust(before.st_size, b"x"))
    os.utime(replaced, ns=(before.st_atime_ns, before.st_mtime_ns))
    code, text, _ = unseen(capsys, "index", "verify", index)
    assert (code, "1 images are not what was embedded" in text) == (1, True)
    assert "renewed 1" in unseen(capsys, "index", "update", index, "--thorough")[1]
    assert unseen(capsys, "index", "verify", index, "--thorough")[0] == 0
    replaced.write_bytes(content)


def test_embed_leaves_out_what_cannot_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path, trained: Path
) -> None:
    run, broken, out = tmp_path / "run", tmp_path / "broken", tmp_path / "x.npz"
    shutil.copytree(trained, run)
    broken.mkdir()
    for number in range(7):
        (broken / f"{number}.jpg").write_text("words")
    whole = (photos / "kind 1" / "0.jpg").read_bytes()
    (broken / "0.jpg").write_bytes(whole[: len(whole) // 2])
    code, text, _ = unseen(capsys, "embed", run, broken, photos / "kind 1", "--out", out)
    assert code == 0
    assert text.splitlines()[1].endswith("x.npz, 7 files left out")
    assert f"left out: {broken / '0.jpg'} (the file ends too early)\n" in text
    assert text.endswith("  and 2 more that cannot be read\n")
    with np.load(out) as arrays:
        assert [Path(path).parent.name for path in arrays["paths"]] == ["kind 1"] * 3
        assert len(arrays["vectors"]) == 3
        vectors = arrays["vectors"]
    assert unseen(capsys, "embed", run, photos / "kind 1", "--out", tmp_path / "x.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "x.npy"), vectors)
    assert unseen(capsys, "embed", run, photos, "--out", out)[0] == 0
    code, text, _ = unseen(capsys, "evaluate", "embeddings", out)
    assert code == 0
    assert "R@1" in text
    code, _, errors = unseen(capsys, "embed", run, broken, "--out", tmp_path / "x.txt")
    assert (code, "--out must end in .npz, .npy, .csv" in errors) == (2, True)
    code, _, errors = unseen(capsys, "embed", run, broken, "--out", out)
    assert code == 2
    assert "none of the 7 files can be read" in errors


@pytest.mark.parametrize("words", [("index", "build"), ("embed",), ("embed", "shards")])
def test_labels_that_no_readable_image_has_do_not_count(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    photos: Path,
    trained: Path,
    words: tuple[str, ...],
) -> None:
    """As `data check` and `train` say it of classes."""
    run, broken = tmp_path / "run", tmp_path / "broken"
    shutil.copytree(trained, run)
    shutil.copytree(photos, broken)
    (broken / "phantom").mkdir()
    for file in (broken / "phantom" / "0.jpg", broken / "kind 1" / "broken.jpg"):
        file.write_text("words")
    out = tmp_path / {"index": "x.index", "embed": "x.npz"}[words[0]]
    if words[1:] == ("shards",):
        words, out = words[:1], tmp_path / "folder"
        out.mkdir()
    code, text, _ = unseen(capsys, *words, run, broken, "--out", out)
    assert code == 0
    assert text.startswith("4 labels (kind 0, kind 1, kind 2 and 1 more)\n")
    message = "1 class has only files that cannot be read, and does not count: phantom\n"
    assert text.endswith(f"  {message}")
    if words[0] == "index":
        code, text, _ = unseen(capsys, "index", "add", out, broken)
        assert "added 0, 9 were there" in text
        assert text.endswith(f"  {message}")


def test_mistakes_get_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path
) -> None:
    for words, advice in [
        (("search", tmp_path, photos / "kind 0" / "0.jpg"), "is no index"),
        (("index", "verify", tmp_path / "none"), "is no index"),
        (("index", "build", tmp_path, photos, "--out", tmp_path / "i"), "no trained network"),
        (("embed", tmp_path, photos, "--out", tmp_path / "x.npz"), "no trained network"),
        (("calibrate", tmp_path), "no trained network"),
    ]:
        code, text, errors = unseen(capsys, *words)
        assert code in (1, 2)
        assert advice in " ".join((text + errors).split())
        assert "Traceback" not in errors


def test_who_cannot_calibrate_is_not_advised_to(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    message = (
        "the run kept 2 classes aside, `unseen calibrate` needs 3: train with a larger "
        "validation_fraction, or on more classes"
    )
    for classes, reason in ((2, message), (3, None)):
        run.file("manifest.json").write_text(
            json.dumps({"data": {"split": {"validation_classes": classes}}, "version": VERSION})
        )
        assert why_impossible(run) == reason

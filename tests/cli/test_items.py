"""Every command that reads a run evaluates the items it was trained with, or says what changed."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = ["epochs=1", "sampler.steps=2", "batch_size=8", "embedding_size=8", "image_size=16"]
TINY += ["backbone=small_conv", "workers=0", 'metrics=["recall@1"]']


def unseen(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (16, 16, 3))
    Image.fromarray(noise.astype(np.uint8)).save(path)


def write_photos(root: Path) -> Path:
    for c in range(8):
        for i in range(4):
            image(root / f"class {c}" / f"{i}.bmp", 10 * c + i)
    return root


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, narrow_network: None) -> Path:
    """Photos and a run trained on them; tests change copies."""
    root = tmp_path_factory.mktemp("original")
    write_photos(root / "photos")
    with pytest.MonkeyPatch.context() as patch:
        words = ["train", str(root / "photos"), *TINY, "--out", str(root / "run")]
        patch.setattr(sys, "argv", ["unseen", *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
    assert not ended.value.code
    return root


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"


def readings(run: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(run.glob("readings/*.json"))]


def test_a_class_that_came_later_is_left_out(
    capsys: pytest.CaptureFixture[str], copy: Path
) -> None:
    run, photos = copy / "run", copy / "photos"
    before = {name: (run / name).read_bytes() for name in ("result.json", "items.npz")}
    arrays = (run / "embeddings" / "test.npz").read_bytes()
    for i in range(4):
        image(photos / "class 2b" / f"{i}.bmp", 900 + i)
    code, text, errors = unseen(capsys, "evaluate", "run", run, "--data", photos)
    assert code == 0, errors
    assert "left out" in text
    assert "4 added (class 2b/0.bmp" in text
    assert before == {name: (run / name).read_bytes() for name in before}
    assert arrays == (run / "embeddings" / "test.npz").read_bytes()
    [reading] = readings(run)
    result = json.loads(before["result.json"])
    assert reading["scores"] == result["scores"]
    assert reading["split"] == result["split"]
    assert reading["data"]["fingerprint"] == result["data"]["fingerprint"]
    for words in (
        ["evaluate", "run", run, "--layers", "all"],
        ["inspect", "diagnose", run],
        ["report", run],
    ):
        code, _, errors = unseen(capsys, *words, "--data", photos)
        assert code == 0, errors


def remove(photos: Path) -> None:
    (photos / "class 3" / "1.bmp").unlink()


def replace_in_silence(photos: Path) -> None:
    """The same size, and the time of its content set back: the time of its entry cannot be."""
    path = photos / "class 3" / "1.bmp"
    result = path.stat()
    image(path, 777)
    os.utime(path, ns=(result.st_atime_ns, result.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (result.st_size, result.st_mtime_ns)


def move(photos: Path) -> None:
    (photos / "class 3" / "1.bmp").rename(photos / "class 5" / "other.bmp")


def add(photos: Path) -> None:
    image(photos / "class 3" / "new.bmp", 778)


CHANGES = [
    (remove, "1 removed (class 3/1.bmp)"),
    (replace_in_silence, "1 of other content (class 3/1.bmp)"),
    (move, "1 moved (class 3/1.bmp to class 5/other.bmp)"),
]
Change = Callable[[Path], None]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_lost_and_changed_items_are_refused_and_named(
    capsys: pytest.CaptureFixture[str], copy: Path, change: Change, message: str
) -> None:
    run, photos = copy / "run", copy / "photos"
    change(photos)
    result = (run / "result.json").read_bytes()
    for words in (
        ["evaluate", "run", run],
        ["inspect", "diagnose", run],
        ["report", run],
        ["inspect", "refine", run],
    ):
        code, _, errors = unseen(capsys, *words, "--data", photos)
        assert code == 2
        assert message in errors
        assert "--data PATH" in errors
        assert len(errors.strip().splitlines()) == 1
    assert (run / "result.json").read_bytes() == result
    assert not readings(run)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, narrow_network: None) -> Path:
    """Photos, and a run that was stopped before its second epoch."""
    root = tmp_path_factory.mktemp("stopped")
    write_photos(root / "photos")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(sys, "argv", ["unseen", *STOPPED])
        patch.setattr("unseen.runs.training_loop.TrainingLoop._is_over", _stop_in_second_epoch)
        patch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        with pytest.raises(SystemExit):
            main.run()
    return root


STOPPED = ["train", "photos", *TINY, "epochs=2"]
RUN = Path("runs") / "photos-multi_similarity-seed0"


def _stop_in_second_epoch(fit: Any) -> bool:
    if fit.trainer.place.epoch:
        raise KeyboardInterrupt
    return False


@pytest.fixture
def _at_copy_of_stopped(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(stopped, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


@pytest.mark.usefixtures("_at_copy_of_stopped")
@pytest.mark.parametrize(("change", "message"), [*CHANGES, (add, "1 added (class 3/new.bmp)")])
def test_a_stopped_run_does_not_go_on_with_other_data(
    capsys: pytest.CaptureFixture[str], change: Change, message: str
) -> None:
    weights = (RUN / "weights.safetensors").read_bytes()
    change(Path("photos"))
    code, _, errors = unseen(capsys, *STOPPED)
    assert code == 2
    assert message in errors
    assert "--accept-changes" in errors
    assert not (RUN / "result.json").exists()
    assert (RUN / "weights.safetensors").read_bytes() == weights


@pytest.mark.usefixtures("_at_copy_of_stopped")
def test_accepted_changes_begin_a_new_run(capsys: pytest.CaptureFixture[str]) -> None:
    add(Path("photos"))
    code, _, errors = unseen(capsys, *STOPPED, "--accept-changes")
    assert code == 0, errors
    new = RUN.with_name(f"{RUN.name}-2")
    assert (new / "result.json").exists()
    assert not (RUN / "result.json").exists()
    code, text, errors = unseen(capsys, *STOPPED)  # finds the new run by itself
    assert code == 0, errors
    assert f"{new} is finished" in text
    (Path("photos") / "class 3" / "new.bmp").unlink()
    code, text, errors = unseen(capsys, *STOPPED)  # and, with the old data, the old one
    assert code == 0, errors
    assert (RUN / "result.json").exists()


@pytest.mark.usefixtures("_at_copy_of_stopped")
def test_a_stopped_run_leaves_readings_and_a_result_only_at_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for count in (1, 2):
        assert unseen(capsys, "evaluate", "run", RUN)[0] == 0
        assert len(readings(RUN)) == count
    assert not (RUN / "result.json").exists()
    assert unseen(capsys, "report", RUN)[0] == 0
    assert "no result.json yet" not in (RUN / "report" / "index.html").read_text()
    first = sorted(RUN.glob("readings/*.json"))[0].read_bytes()
    assert unseen(capsys, *STOPPED)[0] == 0
    assert (RUN / "result.json").exists()
    assert sorted(RUN.glob("readings/*.json"))[0].read_bytes() == first


def test_other_data_are_evaluated_without_classes_that_were_trained_on(
    capsys: pytest.CaptureFixture[str], copy: Path, tmp_path: Path
) -> None:
    """By name or by content: `class 4` stands there as well, and a copy under another name."""
    run, other = copy / "run", tmp_path / "other"
    with np.load(run / "items.npz") as held:
        labels, train = held["labels"], held["split_train"]
    first, second = np.unique(labels[train])[:2]
    for name in (f"class {first}", "new a", "new b", "new c"):
        for i in range(3):
            image(other / name / f"{i}.bmp", 5000 + len(name) + i + 10 * ord(name[-1]))
    shutil.copytree(copy / "photos" / f"class {second}", other / "renamed")
    result = (run / "result.json").read_bytes()
    code, text, errors = unseen(capsys, "evaluate", "run", run, "--on", other)
    assert code == 0, errors
    assert f"2 classes (class {first}, renamed" in text
    assert (run / "result.json").read_bytes() == result
    [reading] = readings(run)
    assert reading["on"] == str(other)
    assert reading["split"]["test_classes"] == 3
    assert reading["split"]["test_items"] == 9
    shutil.rmtree(copy / "photos")  # the run's own data are not asked for
    assert unseen(capsys, "evaluate", "run", run, "--on", other)[0] == 0
    code, _, errors = unseen(capsys, "evaluate", "run", run, "--on", other, "--layers", "all")
    assert code == 2


def test_a_table_with_another_label_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    photos = write_photos(tmp_path / "photos")
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in photos.glob("*/*")]
    table, run = tmp_path / "my.csv", tmp_path / "run"
    table.write_text("\n".join(["path,label", *sorted(rows)]))
    code, _, errors = unseen(capsys, "train", table, *TINY, "--out", run)
    assert code == 0, errors
    table.write_text("\n".join(["path,label", *sorted(rows, reverse=True)]))
    code, _, errors = unseen(capsys, "evaluate", "run", run)  # in another order: the same items
    assert code == 0, errors
    assert readings(run)[0]["scores"] == json.loads((run / "result.json").read_text())["scores"]
    swapped = [row.replace("0.bmp,class 2", "0.bmp,class 3") for row in sorted(rows)]
    table.write_text("\n".join(["path,label", *swapped]))
    code, _, errors = unseen(capsys, "evaluate", "run", run)
    assert code == 2
    assert "1 relabelled (photos/class 2/0.bmp)" in errors


def test_features_that_changed_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 4)
    features = rng.normal(size=(32, 6))
    file, run = tmp_path / "features.npz", tmp_path / "run"
    np.savez(file, features=features, labels=labels)
    code, _, errors = unseen(capsys, "train", file, "epochs=1", "--out", run)
    assert code == 0, errors
    more = np.concatenate([features, features[:4] + 1]), np.append(labels, [8] * 4)
    np.savez(file, features=more[0], labels=more[1])
    code, text, errors = unseen(capsys, "evaluate", "run", run)
    assert code == 0, errors
    assert "4 added (row 32" in text
    assert readings(run)[0]["scores"] == json.loads((run / "result.json").read_text())["scores"]
    features[5] += 1
    np.savez(file, features=features, labels=labels)
    code, _, errors = unseen(capsys, "evaluate", "run", run)
    assert code == 2
    assert "1 of other content (row 5)" in errors


def test_a_run_finds_its_data_from_any_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "here" / "photos")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert unseen(capsys, "train", "photos", *TINY, "--out", "runs/a")[0] == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert unseen(capsys, "evaluate", "run", tmp_path / "here" / "runs" / "a")[0] == 0
    (tmp_path / "here").rename(tmp_path / "moved")
    assert unseen(capsys, "evaluate", "run", tmp_path / "moved" / "runs" / "a")[0] == 0
    (tmp_path / "moved" / "photos").rename(tmp_path / "gone")
    code, _, errors = unseen(capsys, "evaluate", "run", tmp_path / "moved" / "runs" / "a")
    assert (code, "no such folder: photos" in errors) == (2, True)

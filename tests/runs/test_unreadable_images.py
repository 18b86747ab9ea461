"""Images that break while a run goes on, and copies on both sides of the split."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.config import schema as configs
from unseen.core.contracts import Split
from unseen.runs.leaks import copies, refuse_shared_classes
from unseen.runs.prepare import Callbacks, RunContext, UnreadableImages, prepare
from unseen.runs.run import train_and_evaluate
from unseen.training.events import Event, Step
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight classes of six images, a colour each, with noise."""
    generator = np.random.default_rng(0)
    for c in range(8):
        folder = tmp_path / "photos" / f"class {c}"
        folder.mkdir(parents=True)
        color = generator.integers(0, 255, 3)
        for i in range(6):
            noisy = np.clip(color + generator.normal(0, 20, (32, 28, 3)), 0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def setting_of(photos: Path, *words: str) -> RunContext:
    common = ["batch_size=8", "embedding_size=8", "epochs=2", "sampler.steps=3", "workers=0"]
    words = (f"data.root={photos}", *common, "transform=base", "image_size=16", *words)
    return prepare(configs.make(configs.override({"data": {"name": "folder"}}, list(words))))


def break_some(context: RunContext) -> list[str]:
    """Cuts a training and a test image after the data set was made."""
    broken = []
    for items in (context.split.train, context.split.test):
        path = context.dataset.path(int(items[1]))  # type: ignore[attr-defined]
        path.write_bytes(path.read_bytes()[:200])
        broken.append(str(path))
    return broken


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Callbacks:
    def listen(event: Event) -> None:
        if isinstance(event, Step) and event.step == step:
            raise StoppedError

    return Callbacks([listen])


def test_a_run_goes_on_without_broken_images(photos: Path, tmp_path: Path) -> None:
    context = setting_of(photos, "epochs=6")
    broken = break_some(context)
    message: list[str] = []
    result = train_and_evaluate(context, tmp_path / "run", "test", Callbacks(warn=message.append))
    assert result.unreadable_images == 2
    assert len([line for line in message if "cannot be read any more" in line]) == 2
    assert all(any(path in line for line in message) for path in broken)
    event_log = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in event_log if '"unreadable"' in line]
    assert [event["path"] for event in noted] == broken[:1]  # the test classes are read after it


@pytest.mark.parametrize("cached_augmentations", [0, 2])
def test_frozen_layers_go_on_without_broken_images_until_they_are_back(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_augmentations: int
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    words = (
        "backbone=small_conv",
        "freeze_until=stage2",
        f"cached_augmentations={cached_augmentations}",
        "pooling=avg",
    )
    context = setting_of(photos, *words)
    whole = {path: Path(path).read_bytes() for path in map(str, photos.glob("*/*.png"))}
    broken = break_some(context)
    for name in ("first", "second"):  # a run that finds the cache is told as well
        message: list[str] = []
        again = replace(context, unreadable=UnreadableImages())
        result = train_and_evaluate(again, tmp_path / name, "test", Callbacks(warn=message.append))
        assert result.unreadable_images == 2
        assert all(any(path in line for line in message) for path in broken)
    for path in broken:
        Path(path).write_bytes(whole[path])
    mended = replace(context, unreadable=UnreadableImages())
    assert train_and_evaluate(mended, tmp_path / "third", "test").unreadable_images == 0
    marks = [path.read_bytes() for path in (tmp_path / "cache" / "activations").glob("*/done")]
    assert len(marks) == 1 + cached_augmentations
    assert set(b"".join(mark[::5] for mark in marks)) == {1}  # each has a checksum behind it


def test_frozen_layers_stop_at_a_broken_image_if_strict(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    context = setting_of(photos, "freeze_until=stage2", "strict=true")
    break_some(context)
    with pytest.raises(ValueError, match="cannot read image"):
        train_and_evaluate(context, tmp_path / "run", "test")


@pytest.mark.parametrize("stop", [1, 4])
def test_stopped_and_resumed_with_broken_images(
    photos: Path, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole = setting_of(photos)
    twice = [setting_of(photos), setting_of(photos)]
    break_some(whole)
    result = train_and_evaluate(whole, tmp_path / "whole", "test")
    with pytest.raises(StoppedError):
        train_and_evaluate(twice[0], tmp_path / "parts", "test", stop_at(stop))
    assert train_and_evaluate(twice[1], tmp_path / "parts", "test") == result
    weights = [
        RunFolder(tmp_path / r).read_tensors("weights.safetensors") for r in ("whole", "parts")
    ]
    assert all((weights[0][key] == weights[1][key]).all() for key in weights[0])


def test_strict_stops_at_the_first(photos: Path, tmp_path: Path) -> None:
    context = setting_of(photos, "strict=true", "epochs=6")
    broken = break_some(context)
    with pytest.raises(ValueError, match="cannot read image") as caught:
        train_and_evaluate(context, tmp_path / "run", "test")
    assert str(caught.value).split(": ")[0].removeprefix("cannot read image ") in broken


def test_copies_across_the_split_are_counted_and_recorded(photos: Path, tmp_path: Path) -> None:
    context = setting_of(photos)
    assert context.copies is not None
    assert set(context.copies.counts().values()) == {0}
    trained, tested = (
        context.dataset.path(int(items[0]))  # type: ignore[attr-defined]
        for items in (context.split.train, context.split.test)
    )
    (tested.parent / "copy.png").write_bytes(trained.read_bytes())
    (trained.parent / "another.png").write_bytes(trained.read_bytes())
    context = setting_of(photos, "epochs=1", "sampler.steps=1")
    assert context.copies is not None
    assert context.copies.counts() == {
        "duplicates": 2,
        "duplicates across the split": 2,
        "duplicates under other labels": 3,
    }
    assert "copy.png" in context.copies.examples[0]
    train_and_evaluate(context, tmp_path / "run", "test")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data"]["data"]["duplicates across the split"] == 2


def test_a_class_on_both_sides_is_an_error(photos: Path) -> None:
    context = setting_of(photos)
    dataset, split = context.dataset, context.split
    refuse_shared_classes(dataset, split, context.relevance)
    mixed = Split(split.train, split.validation, np.append(split.test, split.train[0]))
    with pytest.raises(ValueError, match=r"1 classes are both in train and in test: class \d"):
        refuse_shared_classes(dataset, mixed, context.relevance)


def test_images_that_are_no_files_have_no_copies() -> None:
    class Drawn:
        labels = np.zeros(3, dtype=np.int64)

        def __len__(self) -> int:
            return 3

    empty = np.zeros(0, dtype=np.int64)
    assert copies(Drawn(), Split(empty, empty, empty)) is None  # type: ignore[arg-type]

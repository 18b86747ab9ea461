"""The whole study on tiny data: it ends in a page with an answer, which can be made again."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.reproductions.conftest import work_here
from unseen.models.weights import read_tensors
from unseen.runs.prepare import Callbacks
from unseen.studies import archive
from unseen.studies.generalization.plan_runs import SIZES
from unseen.studies.generalization.run_study import (
    Request,
    Shown,
    _resolved,
    is_generalization,
    remake,
    run,
)
from unseen.studies.generalization.run_study import small_files_of as small_files

WORDS = ("epochs=1", "batch_size=8", "embedding_size=8")
DRAWN = ("data.max_classes=24", "data.size=16")


def tiny(file: Path, seed: int, classes: int = 24) -> Path:
    draw, labels = np.random.default_rng(seed), np.repeat(np.arange(classes), 8)
    values = draw.normal(size=(classes, 12))[labels] + 1.2 * draw.normal(size=(len(labels), 12))
    np.savez(file, features=values.astype(np.float32), labels=labels + 100 * seed)
    return file


def test_a_wrong_method_stops_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="margn"):
        run(Request("nowhere.npz", methods=("margn", "triplet")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_can_be_given_again() -> None:
    request = Request(
        "my photos/", ("margin", "supcon"), ("cars/",), "quick", ("epochs=3",), layers=True
    )
    assert request.command == (
        "unseen study preset generalization --data 'my photos/' --methods margin,supcon "
        "--also cars/ --budget quick --layers epochs=3"
    )


def test_layers_want_images_and_more_than_a_head(tmp_path: Path) -> None:
    features = Request(str(tiny(tmp_path / "home.npz", 0)), ("margin", "triplet"), layers=True)
    with pytest.raises(ValueError, match="layers=True wants images"):
        run(features, tmp_path / "out")
    for place in range(24):
        (file := tmp_path / "dots" / f"class {place % 8}" / f"{place}.png").parent.mkdir(
            parents=True, exist_ok=True
        )
        Image.new("RGB", (16, 16), (place, 0, 0)).save(file)
    words = ("freeze_until=pooled",)
    head = Request(str(tmp_path / "dots"), ("margin", "triplet"), settings=words, layers=True)
    with pytest.raises(ValueError, match=r"only a head on frozen small_conv .* depth=last_layers"):
        run(head, tmp_path / "out")


@pytest.mark.slow
def test_from_features_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.studies.engine._supervise", work_here)
    monkeypatch.setitem(SIZES, "quick", (3, 1, 0))
    data, other = tiny(tmp_path / "home.npz", 0), tiny(tmp_path / "other.npz", 1, classes=9)
    request = Request(
        str(data), ("margin", "multi_similarity+metrix"), (str(other),), "quick", WORDS
    )
    page = run(request, tmp_path / "out", jobs=1, shown=Shown())
    message = (page.parent / "findings.md").read_text()
    assert "inconclusive" in message, "one epoch passes no validity check"
    for section in ("Shift", "Few shots", "Open set", "Other domains"):
        assert f"### {section}\n" in message
    assert request.command in message
    assert is_generalization(page.parent)
    before = page.read_bytes()
    assert remake(page.parent).read_bytes() == before
    file = tmp_path / "kept.txz"
    archive.write(file, small_files(page.parent))
    again = remake(archive.unpack(file))
    result = (again.parent / "findings.md").read_text()
    for name in (data, other):
        message = message.replace(str(name), f"data/{name.name}")
    assert result == message
    place = Path(__file__).parents[3] / "docs" / "benchmark_page.py"
    spec = importlib.util.spec_from_file_location("benchmark_page", place)
    assert spec is not None
    assert spec.loader is not None
    benchmark_page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark_page)
    file.rename(tmp_path / "generalization-tiny.txz")
    text = benchmark_page.write(tmp_path, tmp_path / "docs").read_text()
    assert "## tiny\n" in text
    assert "](figures/benchmark/tiny-shift.png)" in text
    assert (tmp_path / "docs" / "figures" / "benchmark" / "tiny-shift.png").exists()


@pytest.mark.slow
def test_from_images_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are trained, on stages of what they give before; the page says so."""
    monkeypatch.setattr("unseen.studies.engine._supervise", work_here)
    monkeypatch.setitem(SIZES, "quick", (3, 1, 0))
    words = (*DRAWN, "epochs=1", "batch_size=8")
    request = Request("glyphs", ("margin", "triplet"), (), "quick", words, layers=True)
    page = run(request, tmp_path / "out", jobs=1)
    message = (page.parent / "findings.md").read_text()
    assert "runs trained the whole of small_conv from random weights." in message
    assert "The splits are made of small_conv (random weights), pooling " in message
    assert "Heads of" not in message
    assert (tmp_path / "out" / "stages.csv").exists()
    weights = sorted((tmp_path / "out" / "studies").rglob("runs/*margin*/weights.safetensors"))
    assert any("backbone" in name for name in read_tensors(weights[0]))
    file = tmp_path / "kept.txz"
    archive.write(file, small_files(page.parent))
    assert (remake(archive.unpack(file)).parent / "findings.md").read_text() == message
    own = replace(request, settings=(*words, f"shift.table={tmp_path / 'out' / 'stages.csv'}"))
    known = _resolved(own, tmp_path / "other", Callbacks())
    assert known.layers is not None
    assert known.layers.table == str(tmp_path / "out" / "stages.csv")
    assert not (tmp_path / "other" / "stages.csv").exists()

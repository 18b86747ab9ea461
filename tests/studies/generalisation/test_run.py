"""The whole study on tiny data: it ends in a page with an answer, which can be made again."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.studies.published.conftest import work_here
from unseen.experiment.run_context import Watch
from unseen.networks.weights import read_tensors
from unseen.studies import kept
from unseen.studies.generalisation.run import (
    Asked,
    Shown,
    _settled,
    is_generalisation,
    remake,
    run,
)
from unseen.studies.generalisation.run import small_files_of as small_files

WORDS = ("epochs=1", "batch_size=8", "embedding_size=8")
DRAWN = ("data.max_classes=24", "data.size=16")


def tiny(file: Path, seed: int, classes: int = 24) -> Path:
    draw, labels = np.random.default_rng(seed), np.repeat(np.arange(classes), 8)
    values = draw.normal(size=(classes, 12))[labels] + 1.2 * draw.normal(size=(len(labels), 12))
    np.savez(file, features=values.astype(np.float32), labels=labels + 100 * seed)
    return file


def test_a_wrong_method_stops_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="margn"):
        run(Asked("nowhere.npz", methods=("margn", "triplet")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_can_be_given_again() -> None:
    asked = Asked("my photos/", ("margin", "supcon"), ("cars/",), 60, ("epochs=3",), layers=True)
    assert asked.command == (
        "unseen study preset generalisation --data 'my photos/' --methods margin,supcon "
        "--also cars/ --minutes 60 --layers epochs=3"
    )


def test_layers_want_pictures_and_more_than_a_head(tmp_path: Path) -> None:
    features = Asked(str(tiny(tmp_path / "home.npz", 0)), ("margin", "triplet"), layers=True)
    with pytest.raises(ValueError, match="--layers wants pictures"):
        run(features, tmp_path / "out")
    for place in range(24):
        (file := tmp_path / "dots" / f"class {place % 8}" / f"{place}.png").parent.mkdir(
            parents=True, exist_ok=True
        )
        Image.new("RGB", (16, 16), (place, 0, 0)).save(file)
    words = ("freeze_until=pooled",)
    head = Asked(str(tmp_path / "dots"), ("margin", "triplet"), settings=words, layers=True)
    with pytest.raises(ValueError, match=r"only a head on frozen small_conv .* depth=last"):
        run(head, tmp_path / "out")


@pytest.mark.slow
def test_from_features_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.studies.engine._supervise", work_here)
    data, other = tiny(tmp_path / "home.npz", 0), tiny(tmp_path / "other.npz", 1, classes=9)
    asked = Asked(str(data), ("margin", "multi_similarity+metrix"), (str(other),), 1, WORDS)
    page = run(asked, tmp_path / "out", jobs=1, shown=Shown())
    told = (page.parent / "findings.md").read_text()
    assert "cannot be told" in told, "one epoch passes no gate"
    for section in ("Shift", "Few shots", "Open set", "Other domains"):
        assert f"### {section}\n" in told
    assert asked.command in told
    assert is_generalisation(page.parent)
    before = page.read_bytes()
    assert remake(page.parent).read_bytes() == before
    file = tmp_path / "kept.txz"
    kept.write(file, small_files(page.parent))
    again = remake(kept.unpack(file))
    found = (again.parent / "findings.md").read_text()
    for name in (data, other):
        told = told.replace(str(name), f"data/{name.name}")
    assert found == told
    place = Path(__file__).parents[3] / "docs" / "benchmark_page.py"
    spec = importlib.util.spec_from_file_location("benchmark_page", place)
    assert spec is not None
    assert spec.loader is not None
    benchmark_page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark_page)
    file.rename(tmp_path / "generalisation-tiny.txz")
    text = benchmark_page.write(tmp_path, tmp_path / "docs").read_text()
    assert "## tiny\n" in text
    assert "](figures/benchmark/tiny-shift.png)" in text
    assert (tmp_path / "docs" / "figures" / "benchmark" / "tiny-shift.png").exists()


@pytest.mark.slow
def test_from_pictures_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are trained, on a ladder of what they give before; the page says so."""
    monkeypatch.setattr("unseen.studies.engine._supervise", work_here)
    words = (*DRAWN, "epochs=1", "batch_size=8")
    asked = Asked("glyphs", ("margin", "triplet"), minutes=1, settings=words, layers=True)
    page = run(asked, tmp_path / "out", jobs=1)
    told = (page.parent / "findings.md").read_text()
    assert "runs trained the whole of small_conv from random weights." in told
    assert "The ladder is made of small_conv (random weights), pooling " in told
    assert "Heads of" not in told
    assert (tmp_path / "out" / "ladder.csv").exists()
    weights = sorted((tmp_path / "out" / "studies").rglob("runs/*margin*/weights.safetensors"))
    assert any("backbone" in name for name in read_tensors(weights[0]))
    file = tmp_path / "kept.txz"
    kept.write(file, small_files(page.parent))
    assert (remake(kept.unpack(file)).parent / "findings.md").read_text() == told
    own = replace(asked, settings=(*words, f"shift.table={tmp_path / 'out' / 'ladder.csv'}"))
    known = _settled(replace(own, minutes=0), tmp_path / "other", 1, Watch())
    assert known.layers is not None
    assert known.layers.table == str(tmp_path / "out" / "ladder.csv")
    assert not (tmp_path / "other" / "ladder.csv").exists()

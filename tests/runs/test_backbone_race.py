"""A race of backbones: nested samples of equal classes, scores by hand, who is dropped and why."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unseen
from tests.cli.test_main import unseen as command
from unseen.cli import race_page
from unseen.config.find_data import data_table
from unseen.core.custom_components import trusted
from unseen.core.statistics import Interval
from unseen.evaluation.evaluate import Score
from unseen.models import candidates as lists
from unseen.models.candidates import Candidate
from unseen.runs import backbone_race
from unseen.runs.backbone_race import Race, Standing, _chosen, _Sample, race

BODIES = '''
import torch
from unseen.models.body_spec import InputSpec

class Colors(torch.nn.Module):
    """The mean color: knows the classes."""
    input_spec = InputSpec(16, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Conv2d(3, 4, 1)
    def forward(self, images):
        return self.one(images)

class Slow(Colors):
    """The same, with more work."""
    input_spec = InputSpec(16)
    def forward(self, images):
        for _ in range(40):
            torch.randn(200, 200) @ torch.randn(200, 200)
        return super().forward(images)

class Corner(Colors):
    """One pixel."""
    input_spec = InputSpec(24)
    def forward(self, images):
        return super().forward(images)[:, :, :1, :1]
'''


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this machine do not take part."""
    monkeypatch.setattr(lists, "has_weights", lambda name: False)
    monkeypatch.setattr(lists, "cached_backbones", list)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 classes of 5 images: a color each, with much noise."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    (root / "bodies.py").write_text(BODIES)
    weights = {"one.weight": torch.eye(4, 3)[:, :, None, None], "one.bias": torch.zeros(4)}
    torch.save(weights, root / "eye.pth")
    for c in range(24):
        folder = root / "photos" / f"class {c}"
        folder.mkdir(parents=True)
        color = generator.integers(40, 215, 3)
        for i in range(5):
            noisy = np.clip(color + generator.normal(0, 60, (20, 20, 3)), 0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(folder / f"{i}.png")
    return root


def run(images: Path, *names: str, **how: Any) -> Race:
    values = {"data": data_table(str(images / "photos")), "threads": 1, "workers": 0}
    named = [Candidate(f"{images}/bodies.py:{name}", f"{images}/eye.pth") for name in names]
    with trusted():
        return race(values, named, **how)


def test_a_sample_has_as_many_of_each_class_and_is_in_the_next() -> None:
    labels = np.random.default_rng(1).integers(0, 40, 1000)
    items = np.flatnonzero(labels < 30)
    sample, before = _Sample(items, labels, 0), set[int]()
    for number in (60, 120, 240, 400):
        drawn = set(sample.of(number).tolist())
        sizes = [sum(labels[i] == c for i in drawn) for c in {int(labels[i]) for i in drawn}]
        assert before <= drawn <= set(items.tolist())
        assert len(sizes) == min(30, number // 4)
        assert max(sizes) - min(sizes) <= 1
        before = drawn
    assert set(sample.of(10**6).tolist()) == set(items.tolist())


def test_the_better_features_win_and_test_classes_are_not_embedded(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts, embedded = [], []
    original = backbone_race.RunContext.batches

    def noting(context: Any, transform: Any, items: Any) -> Any:
        contexts.append(context)
        embedded.extend(items.tolist())
        return original(context, transform, items)

    monkeypatch.setattr(backbone_race.RunContext, "batches", noting)
    result = run(images, "Corner", "Colors")
    titles = [each.candidate.title for each in result.standings]
    assert titles == ["Colors (eye.pth)", "Corner (eye.pth)"]
    assert result.choice == result.standings[0].candidate
    assert result.standings[1].is_dropped
    split = contexts[0].split
    trained = {*split.train.tolist(), *split.validation.tolist()}
    assert set(embedded) == trained
    assert not set(embedded) & set(split.test.tolist())
    _check_by_hand(result.standings[0], contexts[0], sorted(trained), images)


def _check_by_hand(standing: Standing, context: Any, items: list[int], images: Path) -> None:
    """Recall of mean colors, normalized as the network says, with loops."""
    mean, std = np.array([0.5, 0.4, 0.3]), np.array([0.2, 0.3, 0.4])
    labels, rows = context.dataset.labels, []
    for item in items:
        side, margin = 18, 1  # 16 * 256 / 224, and what the centre crop leaves
        image = context.dataset.image(item).resize((side, side), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)[margin : margin + 16, margin : margin + 16] / 255
        row = ((pixels - mean) / std).mean(axis=(0, 1))
        rows.append(row / np.linalg.norm(row))
    right = 0
    for k, row in enumerate(rows):
        others = [(float(row @ other), n) for n, other in enumerate(rows) if n != k]
        right += labels[items[max(others)[1]]] == labels[items[k]]
    assert standing.metrics["recall@1"].value == pytest.approx(right / len(items), abs=0.03)


def test_of_equal_candidates_the_faster_one_is_chosen(images: Path) -> None:
    result = run(images, "Slow", "Colors", most=40)
    slow, quick = sorted(result.standings, key=lambda each: each.images_per_second)
    assert (slow.candidate.title, quick.candidate.title) == (
        "Slow (eye.pth)",
        "Colors (eye.pth)",
    )
    assert result.choice == quick.candidate
    assert "no significant difference" in result.why
    assert result.settings == quick.candidate.settings


def standing(
    name: str,
    value: float,
    half: float,
    speed: float,
    is_dropped: bool = False,
    licence: str = "MIT",
) -> Standing:
    candidate, difference = Candidate(name), Interval(value, value - half, value + half)
    scores = {"recall@1": Score(0.5, 0.4, 0.6), "map_at_r": Score(0.25, 0.2, 0.3)}
    known = (licence, 300, scores, difference, speed, 8, 1.0, candidate.published)
    return Standing(candidate, *known, is_dropped)


@pytest.mark.parametrize(
    ("value", "half", "is_behind"),
    [(-0.02, 0.03, False), (-0.02, 0.015, True), (-0.05, 0.04, False), (-0.1, 0.06, True)],
)
def test_a_candidate_is_dropped_where_it_is_known_to_be_worse(
    value: float, half: float, is_behind: bool
) -> None:
    """To 3 points, or by more than 3 points."""
    assert standing("a", value, half, 1.0).is_behind == is_behind


def test_the_choice_says_why() -> None:
    best, near = standing("best", 0, 0, 10), standing("near", -0.01, 0.02, 20)
    worse = standing("worse", -0.02, 0.01, 90)
    gone = standing("gone", -0.2, 0.02, 99, is_dropped=True)
    assert _chosen([best, near, worse, gone])[0] == near.candidate
    choice, why = _chosen([best, worse, gone])
    assert choice == best.candidate
    assert why == "the highest recall@1: worse differs by -2.0 points, -3.0 to -1.0"
    assert _chosen([best])[1] == "the only candidate"
    fastest = standing("best", 0, 0, 100)
    assert (
        _chosen([fastest, near])[1]
        == "no significant difference among 2: the fastest, 100 images/s"
    )


def test_mistakes_are_one_line(images: Path) -> None:
    with pytest.raises(ValueError, match="no weights are installed or cached"):
        run(images)
    with pytest.raises(ValueError, match="leave backbone out, and name candidates"):
        race({"backbone": "resnet50"})
    with pytest.raises(ValueError, match="images must be at least 8, got 3"):
        run(images, "Colors", most=3)


def test_the_command_writes_a_page_and_python_says_the_same(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(images)
    words = ["./bodies.py:Colors=eye.pth", "./bodies.py:Corner=eye.pth"]
    code, text, errors = command(
        capsys, "backbones", "photos", *words, "threads=1", "--out", str(tmp_path / "race")
    )
    assert code == 0, errors
    assert "chosen: Colors (eye.pth): the highest recall@1" in text
    assert "Next: unseen train photos backbone=./bodies.py:Colors weights=eye.pth" in text
    page = (tmp_path / "race" / "index.html").read_text()
    assert "Corner (eye.pth)" in page
    assert (tmp_path / "race" / "figures" / "pareto.png").stat().st_size > 1000
    stored = json.loads((tmp_path / "race" / "race.json").read_text())
    again = unseen.backbones("photos", words, threads=1)
    assert stored["choice"] == again.settings
    assert [each["images"] for each in stored["standings"]] == [60, 60]


def test_the_table_has_published_figures_beside_the_measured_ones() -> None:
    names = ("timm:vit_small_patch14_dinov2.lvd142m", "efficientnet_lite0")
    rows = [standing(name, 0, 0, 9) for name in names]
    table = race_page.race_table(Race("cub", 3, rows, rows[0].candidate, "x", 1.0)).markdown()
    assert table[2].endswith("| **83.5 / 49.3 / 48.2** |")
    assert table[3].endswith("| – / – / – |")

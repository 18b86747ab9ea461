"""The parts of a similarity add up to it; the page, the report and the command show them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from unseen.cli import main
from unseen.data.images.transforms import named
from unseen.models.backbone import Backbone
from unseen.models.body_spec import InputSpec
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.reports import run_page, why_alike
from unseen.runs.explain import Explanation, explain, explain_items
from unseen.runs.trained_run import Trained
from unseen.training.run_folder import RunFolder

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    """As a run would be opened: a small network with a transform, and no folder behind it."""
    body = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.ReLU())
    backbone = Backbone(body, 6, InputSpec(32, MEAN, STD), "avg+max")
    machine = SimpleNamespace(device="cpu", workers=0)
    config: Any = SimpleNamespace(
        training=SimpleNamespace(machine=machine), evaluation=SimpleNamespace(normalize=True)
    )
    network = EmbeddingNetwork(backbone, Head(6, 5)).eval()
    _, transform = named("small", 32, MEAN, STD, None)
    return Trained(RunFolder(tmp_path), config, network, transform, "embedding")


def test_the_parts_add_up_to_the_similarity(trained: Trained, dataset: Any) -> None:
    first, second = (dataset.image(i) for i in (0, 17))
    why = explain(trained, first, second)
    one, two = trained.embed([first, second])
    assert why.is_exact
    assert float(why.pairs.sum()) == pytest.approx(float(one @ two), abs=1e-5)
    assert why.similarity == pytest.approx(float(one @ two), abs=1e-5)
    for heat in why.heat:
        assert float(heat.sum()) == pytest.approx(why.similarity, abs=1e-5)
    assert why.sentences[0].endswith("add up to the similarity.")
    again = explain_items(trained, dataset, 0, 17)
    torch.testing.assert_close(again.pairs, why.pairs)


def test_alike_to_itself(trained: Trained, dataset: Any) -> None:
    image = dataset.image(3)
    why = explain(trained, image, image)
    assert why.similarity == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(why.pairs, why.pairs.T)


def made_up(pairs: list[list[float]]) -> Explanation:
    blank = Image.new("RGB", (8, 8))
    return Explanation(0.5, torch.tensor(pairs), ((2, 1), (1, 3)), (blank, blank), True, "exact")


def test_the_strongest_pairs_share_no_place() -> None:
    why = made_up([[0.9, 0.8, -0.1], [0.7, 0.1, 0.0]])
    assert [(pair.first, pair.second) for pair in why.strongest(5)] == [(0, 0), (1, 1)]
    assert made_up([[-1.0] * 3] * 2).strongest(5) == []


def test_half_of_what_pulls() -> None:
    why = made_up([[6.0, 3.0, 1.0], [0.0, 0.0, -5.0]])
    assert "from 1 of 2 places of the first image and 1 of 3 of the second" in why.sentences[1]


def test_drawn_in_colors_that_say_pull_and_push() -> None:
    drawn = why_alike.draw(made_up([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), side=60)
    assert drawn.size == (132, 60)
    red, _, blue = drawn.getpixel((2, 2))  # type: ignore[misc]
    assert red > blue, "the upper place pulls"
    red, _, blue = drawn.getpixel((2, 57))  # type: ignore[misc]
    assert blue > red, "the lower one pushes"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, trained: Trained) -> None:
    monkeypatch.setattr(Trained, "open", lambda folder: trained)


@pytest.mark.usefixtures("opened")
def test_the_report_explains_mistakes(run: Path, dataset: Any) -> None:
    assert "first answer alike?" not in run_page.write(run, dataset).read_text(), (
        "it has no weights"
    )
    (run / "weights.safetensors").touch()
    html = run_page.write(run, dataset).read_text()
    assert 1 <= html.count("Why are the query and its first answer alike?") <= 4
    assert html.count(why_alike.KEY) == 1


@pytest.mark.usefixtures("opened")
def test_the_command(dataset: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a<b.png", tmp_path / "b.png"]
    for place, file in enumerate(files):
        dataset.image(place).save(file)

    def called(*words: object) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                sys, "argv", ["unseen", "inspect", "explain", "some/run", *map(str, words)]
            )
            with pytest.raises(SystemExit) as ended:
                main.run()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out + printed.err

    code, text = called(*files, "--html", tmp_path / "why.html")
    assert code == 0
    assert "1. row" in text
    html = (tmp_path / "why.html").read_text()
    assert "a&lt;b.png" in html
    assert "data:image/webp" in html
    code, text = called(files[0], tmp_path / "c.png")
    assert code == 2
    assert "no such file" in text

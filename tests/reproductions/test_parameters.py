"""Scores by batch size, weight decay, dimension; preprocessing and architecture need images."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.request import Ask
from unseen.reproductions.roth import parameters
from unseen.reproductions.roth.parameters import Parameters


def test_page(
    many_classes: Path, made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "QUICK", 1)
    folder = made("parameters", many_classes)
    message = (folder / "findings.md").read_text()
    assert "| R32: Larger batches help. |" in message
    assert "| 144 |" in message
    assert "| 0.0004 |" in message
    assert "| 1024 |" in message
    assert "Preprocessing needs images" in message
    assert "| bn_inception | published | 48.78 |" in message
    assert "failed" not in message
    for name in ("batch_size", "weight_decay", "embedding_size"):
        assert (folder / "figures" / f"{name}.pdf").exists()


def test_quick_budget() -> None:
    plans = Parameters().plans(Ask("./features.npz"))
    assert [plan.name for plan in plans] == [
        "by_batch_size", "by_weight_decay", "by_embedding_size"
    ]  # fmt: skip
    assert sum(len(plan.configurations()) * len(plan.seeds) for plan in plans) == 28
    full = Parameters().plans(Ask("./features.npz", "full"))[2]
    assert full.factors["embedding_size"] == [16, 32, 64, 128, 256, 512, 1024]


def test_images_add_two_factors() -> None:
    plans = {plan.name: plan for plan in Parameters().plans(Ask("glyphs"))}
    assert plans["by_transform"].factors["transform"] == ["adv", "base", "big", "red"]
    assert plans["by_transform"].config["freeze_until"] is None  # or crops would not count
    assert plans["by_backbone"].config["weights"] == "imagenet"


@pytest.mark.slow
def test_page_with_images(made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "QUICK", 1)
    monkeypatch.setattr(parameters, "FACTORS", parameters.FACTORS[3:])
    folder = made("parameters", "glyphs", "data.max_classes=12", "data.size=16", "lr=0.001")
    message = (folder / "findings.md").read_text()
    assert "| efficientnet_lite0 | ours |" in message
    assert "failed" not in message
    assert (folder / "figures" / "transform.pdf").exists()
    assert (folder / "figures" / "backbone.pdf").exists()

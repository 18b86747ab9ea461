"""Manifold mixup as a negative control."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.request import Ask
from unseen.reproductions.roth.mixup import Mixup


def test_page(made: Callable[..., Path]) -> None:
    folder = made("mixup", "glyphs", "data.max_classes=12", "data.size=16")
    message = (folder / "findings.md").read_text()
    assert "| R30: Manifold mixup lowers recall on unseen classes. | Softmax, points |" in message
    assert "pixel baseline" in message
    assert "failed" not in message
    assert (folder / "figures" / "spectra.pdf").exists()


def test_features_are_refused() -> None:
    with pytest.raises(ValueError, match="holds features: use glyphs"):
        Mixup().plans(Ask("./features.npz"))


def test_quick_budget() -> None:
    (plan,) = Mixup().plans(Ask("glyphs"))
    assert len(plan.configurations()) * len(plan.seeds) == 12

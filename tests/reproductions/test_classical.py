"""Linear metrics on frozen features."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.reproductions.psomas.classical import _at_most
from unseen.studies.findings import Section


def test_page(features: Path, made: Callable[..., Path]) -> None:
    folder = made("classical", features)
    message = (folder / "findings.md").read_text()
    for row in ("| given | no metric |", "| plain | lmnn |", "| gaussian | mcml |"):
        assert row in message
    assert "R-precision of four corners of a square" in message
    assert "there is no published column" in message
    assert (folder / "figures" / "exclusive_or.png").exists()


def test_nothing_fitted(features: Path, unrun: Callable[..., list[Section]]) -> None:
    assert unrun("classical", features)[0].result == ["Nothing has been fitted yet."]


def test_images_become_features(
    made: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    folder = made("classical", "glyphs", "data.max_classes=12", "data.size=16")
    assert "| polynomial | rca |" in (folder / "findings.md").read_text()


def test_items_of_a_class_are_limited() -> None:
    labels = np.array([0, 1, 0, 0, 1, 2])
    assert _at_most(np.array([0, 1, 2, 3, 5]), labels, 2).tolist() == [0, 1, 2, 5]

"""The two-dimensional toy study."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.roth import toy_points


def test_page(made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_points, "STEPS", 40)
    folder = made("toy", "glyphs")
    message = (folder / "findings.md").read_text()
    assert "| paper code against base, distance of class means |" in message
    assert "| paper code |" in message
    for data in toy_points.DATA:
        assert (folder / "figures" / f"toy_{data}.pdf").exists()

"""The two-dimensional toy study."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.studies.published import toy


def test_page(made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "STEPS", 40)
    folder = made("toy", "glyphs")
    told = (folder / "findings.md").read_text()
    assert "The published picture comes from the" in told
    assert "| paper code |" in told
    assert "0.578" in told  # the reference's share of the first value
    for data in toy.DATA:
        assert (folder / "figures" / f"toy_{data}.pdf").exists()

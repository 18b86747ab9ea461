"""Manifold mixup as a negative control."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.studies.published.named.mixup import Mixup
from unseen.studies.published.page import Section
from unseen.studies.published.study import Ask


def test_page(made: Callable[..., Path]) -> None:
    folder = made("mixup", "glyphs", "data.max_classes=24", "data.size=16")
    told = (folder / "findings.md").read_text()
    assert "With mixup, recall@1 of 3 objectives is: 3 cannot be judged" in told
    assert "raw pixels" in told
    assert "failed" not in told
    assert (folder / "figures" / "spectra.pdf").exists()


def test_features_are_refused() -> None:
    with pytest.raises(ValueError, match="holds features: use --data glyphs"):
        Mixup().plans(Ask("./features.npz"))


def test_quick_budget() -> None:
    (plan,) = Mixup().plans(Ask("glyphs"))
    assert len(plan.variants()) * len(plan.seeds) == 12


def test_nothing_finished(unrun: Callable[..., list[Section]]) -> None:
    recall, spectra = unrun("mixup", "glyphs")
    assert recall.found == ["No pair of runs with and without mixup has finished."]
    assert "No pair of runs left weights" in spectra.found[0]

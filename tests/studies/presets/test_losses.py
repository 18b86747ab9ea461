"""Every objective of Roth et al. beside its published scores."""

from collections.abc import Callable
from pathlib import Path

from unseen.studies import objectives


def test_names_are_the_published_ones() -> None:
    ours = set(objectives.objectives()) | set(objectives.switched())
    theirs = set(objectives.published("cub200")) - {objectives.UNTRAINED, "untrained"}
    assert ours == theirs


def test_page(features: Path, made: Callable[..., Path]) -> None:
    folder = made("losses", features)
    told = (folder / "findings.md").read_text()
    assert "| Multisimilarity |" in told
    assert "62.8" in told  # published
    assert "is best of 23 objectives" in told
    assert "failed" not in told
    assert (folder / "figures" / "objectives.pdf").exists()

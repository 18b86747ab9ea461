"""The tournament of ten losses and what stands around it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.numbers import table
from unseen.reproductions.psomas import thesis


def test_names_are_the_published_ones() -> None:
    assert set(thesis.LOSSES) == {row["loss"] for row in table("thesis_losses")}


@pytest.mark.parametrize(
    "losses",
    [
        ("NPair", "MultiSimilarity", "SoftTriple", "ProxyAnchor"),
        tuple(thesis.LOSSES),
    ],
    ids=len,
)
@pytest.mark.slow
def test_page(
    losses: tuple[str, ...],
    features: Path,
    made: Callable[..., Path],
    unpublished: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if len(losses) < len(thesis.LOSSES):
        monkeypatch.setattr(thesis, "LOSSES", {name: thesis.LOSSES[name] for name in losses})
        grid = {"loss.base": [0.2, 0.5, 0.8]}
        monkeypatch.setattr(thesis, "GRIDS", {"MultiSimilarity": grid | {"miner.epsilon": [0.1]}})
    folder = made("thesis", features, "batch_size=20", "folds=3")
    message = (folder / "findings.md").read_text()
    assert "failed" not in message
    assert "Without training, recall@1 in percent: " in message
    assert "mean ranks must differ by 3.9" in message  # published, 12 experiments
    assert "| MultiSimilarity | 90/10 |" in message
    assert "91.49 | 64.38 |" in message  # published
    assert "| 63.61 | 0.59 |" in message  # published
    assert "| 3 | " in message
    assert "| 99.15 | 63.60 |" in message  # the third of their folds
    assert "| MultiSimilarity | " in message
    assert "| 63.96 |" in message  # published recall@1 at 128-d
    assert "base " in message  # found
    assert "| against ProxyAnchor, points | -2.69 |" in message
    others = unpublished(folder)
    assert "63.61" not in others
    for name in (
        "places_ours",
        "ranks_published",
        "ratios",
        "search",
        "ranks_by_loss_ours",
        "ranks_by_loss_published",
        "by_size",
        "by_network",
    ):
        assert (folder / "figures" / f"{name}.png").exists()

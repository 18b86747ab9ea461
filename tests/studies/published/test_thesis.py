"""The tournament of ten losses and what stands around it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.studies.published.named import thesis
from unseen.studies.published.numbers import table
from unseen.studies.published.page import Section


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
    told = (folder / "findings.md").read_text()
    assert "failed" not in told
    assert "Without training, recall@1 in percent: " in told
    assert "Published: ProxyAnchor first (1.00), NPair last (10.00)" in told
    assert "mean ranks must differ by 3.9" in told  # published, 12 experiments
    assert "| MultiSimilarity | 90/10 |" in told
    assert "91.5 | 64.4 |" in told  # published
    assert "published 63.61 ±0.59" in told
    assert "| 3 | " in told
    assert "| 99.15 | 63.60 |" in told  # the third of their folds
    assert "| MultiSimilarity | " in told
    assert "| 64.0 | " in told  # published recall@1 at 128-d
    assert "the search on validation classes chose base" in told
    assert "65.4 against 68.1, -2.7" in told
    others = unpublished(folder)
    assert "– against –, –" in others
    assert "published – ±–" in others
    for name in (
        "places_ours",
        "ranks_published",
        "ratios",
        "search",
        "pair_weights",
        "ranks_by_loss_ours",
        "ranks_by_loss_published",
        "by_size",
        "by_network",
    ):
        assert (folder / "figures" / f"{name}.png").exists()


def test_nothing_finished(features: Path, unrun: Callable[..., list[Section]]) -> None:
    sections = unrun("thesis", features)
    assert sections[0].found == ["No run has finished: there is no tournament."]
    assert "No finished run" in sections[-1].found[0]

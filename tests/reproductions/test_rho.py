"""The rho switch: gains, chances and spectra."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.published_study import Ask
from unseen.reproductions.roth.losses import objectives_plan
from unseen.reproductions.roth.rho import Rho
from unseen.studies.findings import Section


@pytest.mark.usefixtures("few_objectives")
def test_page(
    features: Path, made: Callable[..., Path], unpublished: Callable[[Path], str]
) -> None:
    folder = made("rho", features)
    message = (folder / "findings.md").read_text()
    assert "Of 5 published gains of the rho switch on cub200: 5 inconclusive." in message
    assert "| +2.4 | inconclusive: 1 of 3 seeds" in message  # Margin, beta 0.6, on CUB-200
    assert "| no: not tuned |" in message
    assert "- epochs: 1; the source has 150." in message
    assert "| 0.375 |" in message
    others = unpublished(folder)
    assert "Of 0 published gains of the rho switch on no published data set" in others
    assert "+2.4" not in others
    assert "0.31 | 0.20" in message  # its published rho, without and with
    for name in ("chance", "spectra", "decay"):
        assert (folder / "figures" / f"{name}.pdf").exists()


def test_shares_the_runs_of_losses() -> None:
    """And looks at 15 of its own in the quick budget."""
    ask = Ask("glyphs")
    first, second = Rho().plans(ask)
    assert first == objectives_plan(ask)
    assert len(second.configurations()) * len(second.seeds) == 15


def test_nothing_finished(features: Path, unrun: Callable[..., list[Section]]) -> None:
    gains, chances, spectra, decay = unrun("rho", features)
    assert gains.result == ["No pair of runs with and without the switch has finished."]
    assert "nothing to compare with" in chances.result[0]
    assert not chances.figures
    assert "No pair of runs left weights" in spectra.result[0]
    assert "Too few runs" in decay.result[0]

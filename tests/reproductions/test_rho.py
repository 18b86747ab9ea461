"""The rho switch: gains, chances and spectra."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.request import Ask
from unseen.reproductions.roth.losses import objectives_plan
from unseen.reproductions.roth.rho import Rho


@pytest.mark.usefixtures("few_objectives")
def test_page(
    features: Path, made: Callable[..., Path], unpublished: Callable[[Path], str]
) -> None:
    folder = made("rho", features)
    message = (folder / "findings.md").read_text()
    assert "Every claim is inconclusive on cub200: " in message
    (row,) = [r for r in message.splitlines() if r.startswith("| R17: ")]
    assert "| +2.43 |" in row  # Margin, beta 0.6, on CUB-200
    assert "inconclusive: 1 of 3 seeds" in row
    assert "| no: not tuned |" in message
    assert message.index("### Validity checks") > message.index("### Decay and recall")
    assert re.search(r"- epochs: 1 in \d+ of \d+ runs; the source has 150\.", message)
    assert "| 0.375 |" in message
    others = unpublished(folder)
    assert "+2.43" not in others
    assert "published –" not in others
    assert "0.31 | 0.20" in message  # its published rho, without and with
    for name in ("chance", "spectra", "decay"):
        assert (folder / "figures" / f"{name}.pdf").exists()


def test_shares_the_runs_of_losses() -> None:
    """And looks at 15 of its own in the quick budget."""
    ask = Ask("glyphs")
    first, second = Rho().plans(ask)
    assert first == objectives_plan(ask)
    assert len(second.configurations()) * len(second.seeds) == 15

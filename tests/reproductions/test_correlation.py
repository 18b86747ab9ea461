"""Metrics, and measures of the training embeddings, beside recall@1."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.reproductions.request import Ask
from unseen.reproductions.roth.correlation import Correlation
from unseen.reproductions.roth.losses import objectives_plan


@pytest.mark.slow
@pytest.mark.usefixtures("few_objectives")
def test_page(
    features: Path, made: Callable[..., Path], unpublished: Callable[[Path], str]
) -> None:
    folder = made("correlation", features)
    message = (folder / "findings.md").read_text()
    assert "| spectral decay rho, r | -0.80 |" in message
    assert "| R@1 and R@4 |" in message
    assert "| inside over between |" in message
    assert "0.79" in message  # its published r
    assert "| -0.80 |" not in unpublished(folder)
    for name in ("space_rho", "metric_correlation"):
        assert (folder / "figures" / f"{name}.pdf").exists()
    (line,) = [line for line in message.splitlines() if line.startswith("| NMI and F1 |")]
    printed, again = (float(cell) for cell in line.split("|")[3:5])
    assert printed == 0.99
    assert again > 0.9  # from their tables, over the same seven


def test_shares_the_runs_of_losses() -> None:
    ask = Ask("glyphs")
    assert Correlation().plans(ask) == [objectives_plan(ask)]

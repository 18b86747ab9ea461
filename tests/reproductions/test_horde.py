"""High-order moments, on glyphs."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unseen.reproductions import published_study as published_studies
from unseen.reproductions import request
from unseen.reproductions.jacob import horde, local_features

pytestmark = pytest.mark.usefixtures("narrow_network")
TINY = ("data.max_classes=16", "data.size=32", "image_size=32", "lr=0.001", "batch_size=16")


@pytest.mark.slow
def test_page(
    made: Callable[..., Path],
    unpublished: Callable[[Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(horde, "QUICK_DIMENSION", 32)
    monkeypatch.setattr(local_features, "flatten", lambda rows, normalize: rows[:, :2])
    folder = made("horde", "glyphs", *TINY, of="cub200")
    message = (folder / "findings.md").read_text()
    assert "failed" not in message
    assert "| fixed_random | 1 to 3 |" in message
    assert "| 56.8 |" in message  # published, fixed, 3 orders, tested at the first
    assert "contrastive, ensemble" in message
    assert "| R@8 % at order 1 | published |" in message  # tables 3 to 5, at every rank
    assert "| triplet + HORDE |" in message
    assert "| contrastive, ensemble, points | +2.70 |" in message
    assert "| contrastive, ensemble + HORDE, all orders |" in message
    assert "| 56.8 |" not in unpublished(folder)
    for name in ("orders", "missing", "scattering"):
        assert (folder / "figures" / f"{name}.png").exists()


def test_features_have_no_maps(features: Path) -> None:
    with pytest.raises(ValueError, match="give images"):
        published_studies.find("horde").plans(request.Ask(str(features)))


def test_discrepancy_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.nn.functional.normalize(
        torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64), dim=3
    )
    result = local_features._discrepancy(x, y, 0.7)
    for pair in range(3):
        means = [0.0, 0.0, 0.0]
        for i in range(4):
            for j in range(4):
                for place, (a, b) in enumerate(((x, x), (y, y), (x, y))):
                    gap = (a[pair, i] - b[pair, j]).square().sum()
                    means[place] += float(torch.exp(-0.7 * gap)) / 16
        assert result[pair].item() == pytest.approx(means[0] + means[1] - 2 * means[2], abs=1e-12)
    assert local_features._discrepancy(x, x, 0.7).abs().max() < 1e-12


def test_bounds_against_loops() -> None:
    """Moments by tensors, transport by all permutations."""
    generator = torch.Generator().manual_seed(0)
    local = torch.nn.functional.normalize(
        torch.rand(6, 3, 4, generator=generator, dtype=torch.float64), dim=2
    )
    x, y = local[0], local[1]
    best = min(
        sum(float((x[i] - y[j]).norm()) for i, j in enumerate(order)) / 3
        for order in itertools.permutations(range(3))
    )
    assert local_features._wasserstein(x, y) == pytest.approx(best, abs=1e-9)
    tensors = [torch.einsum("ia,ib->iab", each, each).mean(dim=0) for each in (x, y)]
    inner = (x @ x.T).pow(2).mean() + (y @ y.T).pow(2).mean() - 2 * (x @ y.T).pow(2).mean()
    assert float((tensors[0] - tensors[1]).square().sum()) == pytest.approx(float(inner))
    found = local_features.bounds(local)
    assert found["wasserstein"]["broken"] == found["mmd"]["broken"] == 0
    assert found["mmd"]["r"] > 0.9

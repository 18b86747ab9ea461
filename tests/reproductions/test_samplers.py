"""Batch samplers by relative performance."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.reproductions.request import METRICS, Ask
from unseen.reproductions.roth import samplers
from unseen.reproductions.roth.samplers import OBJECTIVES, SAMPLERS, Samplers, published
from unseen.studies.relative_performance import relative


def test_page(
    many_classes: Path, made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "QUICK", 2)
    folder = made("samplers", many_classes, "batch_size=16")
    message = (folder / "findings.md").read_text()
    assert "| FRD over SPC-4, % relative |" in message
    assert "63.19" in message  # published: multi-similarity with FRD
    assert "failed" not in message
    assert (folder / "figures" / "relative_performance.pdf").exists()


def test_quick_budget() -> None:
    (plan,) = Samplers().plans(Ask("glyphs"))
    assert len(plan.configurations()) * len(plan.seeds) == 28


def test_published_values_put_spc_2_and_frd_on_top() -> None:
    """Over all objectives and data sets but the products, where SPC-8 is not given."""
    rows = [
        row | {"data": data}
        for data in ("cub200", "cars196")
        for row in published(data, list(OBJECTIVES))
    ]
    assert len(rows) == 2 * 7 * len(SAMPLERS)
    ratios = relative(rows, setup="sampler", fixed=("objective", "data"), metrics=METRICS)
    means = {name: np.mean(values) for name, values in ratios.items()}
    assert set(list(means)[:2]) == {"SPC-2", "FRD"}
    assert max(means.values()) - min(means.values()) < 0.02

"""The published sampler study: SPC-2 and FRD on top; ratios by hand."""

import math

import pytest

from unseen.reproductions import numbers as published
from unseen.studies.relative_performance import relative

METRICS = ("r1", "r2", "nmi", "map", "f1")


def test_the_published_samplers() -> None:
    rows = published.table("revisit_samplers")
    ratios = relative(rows, setup="sampler", fixed=("dataset", "approach"), metrics=METRICS)
    assert set(list(ratios)[:2]) == {"SPC-2", "FRD"}
    assert len(ratios["FRD"]) == 5 * (7 + 7 + 6)
    assert len(ratios["SPC-8"]) == 5 * (7 + 7)
    assert max(max(values) for values in ratios.values()) == 1.0


def test_ratios_by_hand() -> None:
    rows = [
        {"loss": "a", "way": "x", "r1": 50.0, "nmi": 20.0},
        {"loss": "a", "way": "y", "r1": 40.0, "nmi": None},
        {"loss": "b", "way": "x", "r1": 10.0, "nmi": math.nan},
        {"loss": "b", "way": "y", "r1": 20.0, "nmi": 5.0},
    ]
    ratios = relative(rows, setup="way", fixed=("loss",), metrics=("r1", "nmi"))
    assert ratios == {"y": pytest.approx([0.8, 1.0, 1.0]), "x": pytest.approx([1.0, 1.0, 0.5])}
    assert list(ratios) == ["y", "x"]

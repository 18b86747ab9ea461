"""Differences over test classes."""

from pathlib import Path

import numpy as np
import pytest

from unseen.studies.by_class import class_verdict, interval_text, is_told_apart, over_classes
from unseen.studies.plan import Cell
from unseen.studies.results import Run


def run(sums: list[float], seed: int = 0, state: str = "done") -> Run:
    cell = Cell("final", {}, {"seed": seed})
    per_class = {"classes": list(range(len(sums))), "sums": sums, "counts": [10] * len(sums)}
    return Run(cell, Path(), state, per_class=per_class)


def test_difference_is_that_of_all_queries() -> None:
    generator = np.random.default_rng(0)
    first = generator.integers(0, 10, 30).astype(float).tolist()
    second = [value + 1 + place % 2 for place, value in enumerate(first)]
    found = over_classes([run(first)], [run(second)])
    assert found is not None
    assert found.difference.value == pytest.approx((sum(second) - sum(first)) / 300)
    assert found.difference.low < found.difference.value < found.difference.high
    assert is_told_apart(found)
    assert interval_text(found).startswith("+")
    assert class_verdict(found, published=0.3) == "holds"
    assert class_verdict(found, published=-0.3) == "opposite"


def test_runs_are_paired_by_seed() -> None:
    first = [run([1.0, 2.0], 0), run([3.0, 4.0], 1)]
    second = [run([4.0, 3.0], 1), run([9.0, 9.0], 0, "failed")]
    found = over_classes(first, second)
    assert found is not None
    assert found.difference.value == pytest.approx(0.0)
    assert not is_told_apart(found)
    assert class_verdict(found, published=0.3) == "not told apart from 0"


def test_nothing_to_pair() -> None:
    assert over_classes([run([1.0])], [run([1.0], seed=1)]) is None
    assert over_classes([run([])], [run([])]) is None
    assert interval_text(None) == "–"
    assert not is_told_apart(None)

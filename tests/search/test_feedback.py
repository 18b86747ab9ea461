"""Queries of several vectors, against sums written out."""

import math

import numpy as np
import pytest

from unseen.search.feedback import mean, rocchio


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def slow_rocchio(
    query: list[float], right: list[list[float]], wrong: list[list[float]], raw: bool
) -> list[float]:
    """1 q + 0.75 mean of right - 0.15 mean of wrong, number by number."""
    made = []
    for d in range(len(query)):
        value = query[d] if raw else unit(query)[d]
        for vectors, weight in ((right, 0.75), (wrong, -0.15)):
            for vector in vectors:
                value += weight * (vector if raw else unit(vector))[d] / len(vectors)
        made.append(value)
    return made if raw else unit(made)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("rights", "wrongs"), [(0, 1), (1, 0), (3, 2), (2, 5)])
def test_rocchio_equals_the_sums(rights: int, wrongs: int, raw: bool) -> None:
    generator = np.random.default_rng(10 * rights + wrongs)
    query, right, wrong = (
        generator.normal(size=(count, 7)).astype(np.float32) for count in (1, rights, wrongs)
    )
    expected = slow_rocchio(query[0].tolist(), right.tolist(), wrong.tolist(), raw)
    assert rocchio(query, right, wrong, normalize=not raw)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("raw", [False, True])
def test_the_mean_is_that_of_unit_vectors_at_unit_length(raw: bool) -> None:
    vectors = np.array([[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]], dtype=np.float32)
    expected = [1.5, 0.25, 0.0] if raw else [math.sqrt(0.5), math.sqrt(0.5), 0.0]
    assert mean(vectors, normalize=not raw)[0] == pytest.approx(expected)


def test_vectors_that_cancel_each_other_are_still_numbers() -> None:
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0]], dtype=np.float32)
    assert np.isfinite(mean(vectors)).all()

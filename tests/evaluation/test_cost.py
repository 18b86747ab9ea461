"""What is said before a long evaluation."""

import pytest

from unseen.evaluation.cost import Cost, cost


def test_multiply_adds_grow_with_the_square() -> None:
    assert cost(1_000_000, 128).multiply_adds == pytest.approx(6.4e13)
    assert cost(2_000, 8).multiply_adds == 4 * cost(1_000, 8).multiply_adds
    assert cost(1_000, 8, 3_000).multiply_adds == 24e6
    assert cost(1_000, 8).seconds > 0


def test_words() -> None:
    assert str(Cost(6.4e13, 900)).startswith("6.4e+13 multiply-adds, at least 15 minutes")
    assert "at least 45 seconds" in str(Cost(1e12, 45))

"""Schedules give the factors their names promise."""

import pytest

from unseen.training import schedules


def test_constant() -> None:
    assert {schedules.constant()(step) for step in range(100)} == {1.0}


def test_cosine_rises_shortly_and_ends_at_zero() -> None:
    factor = schedules.cosine(1000)
    assert factor(0) == 1 / 20
    assert factor(19) == factor(20) == 1
    assert factor(510) == pytest.approx(0.5)
    assert factor(1000) == pytest.approx(0)
    falling = [factor(step) for step in range(20, 1001)]
    assert falling == sorted(falling, reverse=True)


def test_stepwise_falls_at_each_milestone() -> None:
    factor = schedules.stepwise([10, 30], 0.1)
    assert [factor(step) for step in (0, 9, 10, 29)] == pytest.approx([1, 1, 0.1, 0.1])
    assert factor(30) == pytest.approx(0.01)

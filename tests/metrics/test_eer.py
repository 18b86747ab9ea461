import math

import pytest
import torch

from unseen.metrics.base import PairScores
from unseen.metrics.eer import Eer


def scores(right: list[float], wrong: list[float]) -> PairScores:
    values = sorted(set(right + wrong), reverse=True)
    return PairScores(
        torch.tensor(values),
        torch.tensor([right.count(v) for v in values]),
        torch.tensor([wrong.count(v) for v in values]),
    )


def test_half_of_each_on_the_wrong_side() -> None:
    assert Eer()(scores([0.9, 0.3], [0.8, 0.2])) == pytest.approx(0.5)


def test_between_two_thresholds() -> None:
    """Errors (FMR, FNMR) go from (0, 1/2) to (1/3, 0): the lines meet at 1/5."""
    assert Eer()(scores([0.9, 0.5], [0.5, 0.2, 0.1])) == pytest.approx(1 / 5)


def test_ends() -> None:
    assert Eer()(scores([0.9, 0.8], [0.2, 0.1])) == 0.0
    assert Eer()(scores([0.2, 0.1], [0.9, 0.8])) == 1.0
    assert Eer()(scores([0.5, 0.5], [0.5, 0.5])) == pytest.approx(0.5)
    assert math.isnan(Eer()(scores([], [0.5])))


def test_equals_a_sweep_over_all_thresholds() -> None:
    """With many pairs the two errors cross between neighbouring thresholds."""
    generator = torch.Generator().manual_seed(0)
    right = (torch.randn(500, generator=generator) + 1).tolist()
    wrong = torch.randn(700, generator=generator).tolist()
    sweep = [
        (sum(w >= t for w in wrong) / 700, sum(r < t for r in right) / 500)
        for t in sorted(right + wrong)
    ]
    nearest = min(sweep, key=lambda pair: abs(pair[0] - pair[1]))
    assert Eer()(scores(right, wrong)) == pytest.approx(sum(nearest) / 2, abs=0.002)

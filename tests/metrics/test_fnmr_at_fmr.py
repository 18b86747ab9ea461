import math

import pytest
import torch

from unseen.metrics.base import PairScores
from unseen.metrics.fnmr_at_fmr import FnmrAtFmr


def scores(right: list[float], wrong: list[float]) -> PairScores:
    values = sorted(set(right + wrong), reverse=True)
    return PairScores(
        torch.tensor(values),
        torch.tensor([right.count(v) for v in values]),
        torch.tensor([wrong.count(v) for v in values]),
    )


def test_equals_trying_every_threshold() -> None:
    generator = torch.Generator().manual_seed(0)
    right = ((torch.randn(60, generator=generator) + 1) * 5).round().tolist()
    wrong = (torch.randn(80, generator=generator) * 5).round().tolist()
    for fmr in (0.0, 0.01, 0.1, 0.5, 1.0):
        thresholds = [*right, *wrong, math.inf]
        allowed = [t for t in thresholds if sum(w >= t for w in wrong) / 80 <= fmr]
        expected = sum(r < min(allowed) for r in right) / 60
        assert FnmrAtFmr(fmr)(scores(right, wrong)) == pytest.approx(expected)


def test_collapsed_embeddings_match_nobody() -> None:
    assert FnmrAtFmr(0.1)(scores([0.5] * 3, [0.5] * 4)) == 1.0


def test_no_wrong_pairs() -> None:
    assert math.isnan(FnmrAtFmr()(scores([0.5], [])))


@pytest.mark.parametrize("fmr", [-0.1, 1.1])
def test_bad_rate(fmr: float) -> None:
    with pytest.raises(ValueError, match="fmr"):
        FnmrAtFmr(fmr)

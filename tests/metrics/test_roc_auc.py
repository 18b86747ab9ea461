import math

import pytest
import torch

from unseen.metrics.base import PairScores
from unseen.metrics.roc_auc import RocAuc


def scores(right: list[float], wrong: list[float]) -> PairScores:
    values = sorted(set(right + wrong), reverse=True)
    return PairScores(
        torch.tensor(values),
        torch.tensor([right.count(v) for v in values]),
        torch.tensor([wrong.count(v) for v in values]),
    )


def test_equals_comparing_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    right = ((torch.randn(40, generator=generator) + 1) * 3).round().tolist()
    wrong = (torch.randn(50, generator=generator) * 3).round().tolist()
    wins = sum((r > w) + (r == w) / 2 for r in right for w in wrong)
    assert RocAuc()(scores(right, wrong)) == pytest.approx(wins / (40 * 50))


def test_ends() -> None:
    assert RocAuc()(scores([0.9], [0.1])) == 1.0
    assert RocAuc()(scores([0.1], [0.9])) == 0.0
    assert RocAuc()(scores([0.5], [0.5])) == 0.5
    assert math.isnan(RocAuc()(scores([], [])))

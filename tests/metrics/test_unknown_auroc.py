import math
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score

from unseen.metrics.base import OpenAnswers
from unseen.metrics.unknown_auroc import UnknownAuroc


def test_equals_comparing_all_pairs_and_scikit_learn(open_answers: Any) -> None:
    for seed in range(5):
        given, rows = open_answers(seed)
        known = [s for s, _, is_known, _ in rows if is_known]
        unknown = [s for s, _, is_known, _ in rows if not is_known]
        wins = sum((k > u) + (k == u) / 2 for k in known for u in unknown)
        result = UnknownAuroc()(given)
        assert result == pytest.approx(wins / (len(known) * len(unknown)))
        assert result == pytest.approx(roc_auc_score(given.known, given.similarities))


def test_ends() -> None:
    yes, no = torch.tensor([True]), torch.tensor([False])
    one = torch.ones(2, dtype=torch.float64)
    both = OpenAnswers(one, torch.cat([yes, no]), torch.cat([yes, no]), torch.arange(2))
    assert UnknownAuroc()(both) == 0.5
    assert math.isnan(UnknownAuroc()(OpenAnswers(one[:1], yes, yes, torch.arange(1))))

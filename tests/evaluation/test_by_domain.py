"""Domains by a loop over queries."""

import numpy as np
import pytest
import torch

from unseen.evaluation.by_domain import MEAN, by_domain
from unseen.evaluation.evaluate import evaluate


def test_means_over_the_queries_of_each_domain() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(5)
    rows = torch.randn(12, 4, generator=generator)[labels]
    rows = rows + torch.randn(60, 4, generator=generator)
    domains = (labels >= 9).long()
    whole = evaluate(rows, labels, metrics=["recall@1", "map_at_r", "nmi"])
    result = by_domain(whole, domains, labels, ["birds", "cars", "nothing"], seed=0)
    assert set(result) == {"birds", "cars", MEAN}
    for code, name in enumerate(("birds", "cars")):
        own = [
            float(v) for v, d in zip(whole.per_query["recall@1"], domains, strict=True) if d == code
        ]
        score = result[name].values["recall@1"]
        assert score.value == pytest.approx(np.mean(own))
        kept = result[name].per_query["recall@1"].tolist()
        assert [v for v in kept if not np.isnan(v)] == own
        assert np.isnan(kept).tolist() == [d != code for d in domains.tolist()]
        assert score.low <= score.value <= score.high
        assert result[name].counts["queries"] == len(own)
    mean = result[MEAN].values["map_at_r"]
    both = [result[name].values["map_at_r"] for name in ("birds", "cars")]
    assert mean.value == pytest.approx((both[0].value + both[1].value) / 2)
    halves = [(score.high - score.low) / 2 for score in both]
    assert (mean.high - mean.low) / 2 == pytest.approx(np.hypot(*halves) / 2)

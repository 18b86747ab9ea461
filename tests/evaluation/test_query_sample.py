"""An estimate from some queries: who asks, and how far the estimate is from the truth."""

import pytest
import torch

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.query_sample import sampled
from unseen.evaluation.retrieval_task import RetrievalTask


def test_every_class_asks_as_often_as_it_is_large() -> None:
    labels = torch.cat([torch.full((size,), i) for i, size in enumerate((70, 20, 9, 1))])
    labels = labels[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    for seed in range(20):
        request = sampled(labels, 20, seed)
        assert len(request.unique()) == 20
        counts = torch.bincount(labels[request], minlength=4).double()
        assert ((counts - torch.tensor([14, 4, 1.8, 0.2])).abs() <= 1).all()


def test_everybody_is_as_likely_to_ask() -> None:
    labels = torch.tensor([0] * 7 + [1] * 2 + [2])
    seeds = 2000
    request = torch.cat([sampled(labels, 3, seed) for seed in range(seeds)])
    fraction = torch.bincount(request, minlength=10) / seeds
    assert (fraction - 0.3).abs().max() < 0.05  # 5 standard deviations


def test_the_interval_holds_for_all_queries() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 60
    x = torch.randn(60, 8, generator=generator)[y] + torch.randn(600, 8, generator=generator)
    whole = evaluate(x, y, metrics=("recall@1",), resamples=0).values["recall@1"].value
    held = 0
    for seed in range(40):
        task = RetrievalTask(y, query=sampled(y, 100, seed)).arguments(x)
        score = evaluate(**task, metrics=("recall@1",), resamples=300).values["recall@1"]
        held += score.low <= whole <= score.high
    assert held >= 36


def test_as_many_as_there_are_is_everybody() -> None:
    assert sampled(torch.arange(5), 9).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="at least 1"):
        sampled(torch.arange(5), 0)

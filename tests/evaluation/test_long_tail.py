"""Thirds of the classes by size: each class once, whoever asks most."""

import math

import pytest
import torch

from unseen.evaluation.long_tail import thirds

SIZES = [9, 9, 7, 5, 4, 3, 2, 2]  # eight classes: three, three, two


def test_thirds_are_means_over_their_classes() -> None:
    labels = torch.cat([torch.full((size,), 10 - c) for c, size in enumerate(SIZES)])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    labels = labels[order]
    values = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)).double()
    values[3] = math.nan  # a query without an answer
    result = thirds({"recall@1": values, "nmi": values[:5]}, labels, labels)
    assert result is not None
    assert [(t.name, t.classes, t.smallest, t.largest) for t in result] == [
        ("head", 3, 7, 9),
        ("middle", 3, 3, 5),
        ("tail", 2, 2, 2),
    ]
    for third, classes in zip(result, ([0, 1, 2], [3, 4, 5], [6, 7]), strict=True):
        assert set(third.metrics) == {"recall@1"}  # values of items are of no query
        means = []
        for c in classes:
            own = [float(v) for v, y in zip(values, labels, strict=True) if y == 10 - c]
            own = [v for v in own if not math.isnan(v)]
            means.append(sum(own) / len(own))
        assert third.metrics["recall@1"] == pytest.approx(sum(means) / len(means), abs=1e-6)


def test_classes_alike_have_no_thirds() -> None:
    labels = torch.arange(30) % 6
    assert thirds({"recall@1": torch.ones(30)}, labels, labels) is None
    few = torch.tensor([0, 0, 0, 1])
    assert thirds({"recall@1": torch.ones(4)}, few, few) is None

"""What holds for every classical metric."""

from typing import Any

import pytest
import torch
from torch import Tensor

from unseen import evaluate
from unseen.core import registry

NAMES = registry.names("classical")
Data = tuple[Tensor, Tensor]


def recall(features: Tensor, labels: Tensor) -> float:
    score = evaluate(features, labels, metrics=("recall@1",), normalize=False, resamples=0)
    return score.values["recall@1"].value


def test_there_are_five() -> None:
    assert NAMES == ["lmnn", "mcml", "nca", "rca", "whitening"]


@pytest.mark.parametrize("name", NAMES)
def test_recall_of_new_items_rises_where_one_direction_is_noise(name: str, stretched: Data) -> None:
    features, labels = stretched
    seen = torch.arange(80) % 2 == 0
    metric: Any = registry.create("classical", name).fit(features[seen], labels[seen])
    new = features[~seen]
    assert recall(metric.transform(new), labels[~seen]) > recall(new, labels[~seen]) + 0.1


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_precision_and_leaves_features_alone(name: str, stretched: Data) -> None:
    features, labels = stretched
    before = features.clone()
    metric: Any = registry.create("classical", name).fit(features.float(), labels)
    assert metric.transform(features.float()).dtype == torch.float32
    assert metric.components.dtype == torch.float64
    assert torch.equal(features, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lone", [False, True])
def test_more_dimensions_than_items_and_items_alone_stay_finite(name: str, lone: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 1, 1, 2, 3 if lone else 2])
    features = torch.randn(6, 10, generator=generator, dtype=torch.float64)
    metric: Any = registry.create("classical", name).fit(features, labels)
    assert torch.isfinite(metric.transform(features)).all()


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_refused(name: str) -> None:
    metric: Any = registry.create("classical", name)
    with pytest.raises(ValueError, match="at least two classes"):
        metric.fit(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\[N, D\]"):
        metric.fit(torch.zeros(3, 2), torch.arange(2))
    with pytest.raises(ValueError, match="finite"):
        metric.fit(torch.full((2, 2), torch.nan), torch.arange(2))

"""Scores through an index come with how often it finds the true neighbour."""

import pytest
import torch
from torch import Tensor

from unseen.evaluation.approximate import approximate
from unseen.evaluation.evaluate import evaluate


def clouds(items: int = 2000) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 100, (items,), generator=generator)
    centers = torch.randn(100, 16, generator=generator)
    return centers[labels] + 0.6 * torch.randn(items, 16, generator=generator), labels


@pytest.mark.parametrize("normalize", [True, False])
def test_all_cells_are_exact(normalize: bool) -> None:
    x, y = clouds()
    metrics = ("recall@1", "recall@4", "r_precision")
    result = approximate(x, y, metrics=metrics, normalize=normalize, cells=10_000, checked=200)
    exact = evaluate(x, y, metrics=metrics, normalize=normalize, resamples=0)
    assert result.result_nearest == 1.0
    assert result.checked == 200
    for name in metrics:
        assert result.values[name] == pytest.approx(exact.values[name].value, abs=1e-9)


def test_one_cell_misses_some_and_says_so() -> None:
    x, y = clouds()
    result = approximate(x, y, cells=1)
    exact = evaluate(x, y, metrics=("recall@1",), resamples=0).values["recall@1"].value
    assert 0.5 < result.result_nearest < 1
    assert 0 < result.values["recall@1"] < exact
    assert "1 of" in result.index


def test_a_gallery_answers() -> None:
    x, y = clouds()
    options = {"gallery_embeddings": x[500:], "gallery_labels": y[500:]}
    result = approximate(x[:500], y[:500], **options, cells=10_000)
    exact = evaluate(x[:500], y[:500], **options, metrics=("recall@1",), resamples=0)
    assert result.values["recall@1"] == pytest.approx(exact.values["recall@1"].value)
    assert result.result_nearest == 1.0


@pytest.mark.parametrize("name", ["nmi", "mrr", "eer"])
def test_metrics_that_need_everything_are_refused(name: str) -> None:
    x, y = clouds(200)
    with pytest.raises(ValueError, match=f"{name} needs more than near neighbours"):
        approximate(x, y, metrics=(name,))

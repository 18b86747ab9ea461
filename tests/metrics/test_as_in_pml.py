"""Where pytorch-metric-learning defines a metric rightly, ours has the same value."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from unseen.evaluation.clustering import cluster
from unseen.evaluation.evaluate import evaluate

OURS = {
    "precision_at_1": "precision_at_1",
    "r_precision": "r_precision",
    "map_at_r": "mean_average_precision_at_r",
    "map": "mean_average_precision",
    "mrr": "mean_reciprocal_rank",
    "nmi": "NMI",
    "ami": "AMI",
}


def plain_neighbors(
    query: Tensor, k: int, reference: Tensor, ref_includes_query: bool
) -> tuple[Tensor, Tensor]:
    """Stands in for faiss, which the tests do not need."""
    dist = torch.cdist(query.double(), reference.double())
    if ref_includes_query:
        dist.fill_diagonal_(torch.inf)
        k -= 1
    result = dist.topk(k, largest=False)
    return result.values, result.indices


def same_clusters(x: Tensor, k: int) -> Tensor:
    return cluster(x, k, starts=1)[0].assignments


@pytest.mark.parametrize("averaged", [False, True], ids=["over queries", "over classes"])
@pytest.mark.parametrize("with_gallery", [False, True], ids=["self", "gallery"])
def test_same_numbers(averaged: bool, with_gallery: bool) -> None:
    from pytorch_metric_learning.utils import accuracy_calculator as pml

    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 25, (200,), generator=generator)
    y[0] = 99  # alone
    x = torch.nn.functional.normalize(
        torch.randn(100, 8, generator=generator)[y] + torch.randn(200, 8, generator=generator)
    )
    gallery: tuple[Tensor, Tensor] = (x[80:], y[80:])
    knn: Callable[..., tuple[Tensor, Tensor]] = plain_neighbors
    names = [n for n in OURS if not (n in ("nmi", "ami") and (with_gallery or averaged))]
    calculator = pml.AccuracyCalculator(
        include=[OURS[n] for n in names],
        avg_of_avgs=averaged,
        device=torch.device("cpu"),
        knn_func=knn,
        kmeans_func=same_clusters,
    )
    if with_gallery:
        theirs = calculator.get_accuracy(x[:80], y[:80], *gallery)
        result = evaluate(
            x[:80],
            y[:80],
            gallery_embeddings=gallery[0],
            gallery_labels=gallery[1],
            metrics=names,
            missing="count",  # as the peer does
        )
    else:
        theirs = calculator.get_accuracy(x, y)
        result = evaluate(x, y, metrics=names, starts=1)
    for name in names:
        score = result.values[name]
        ours = score.class_average if averaged else score.value
        assert ours == pytest.approx(theirs[OURS[name]], abs=1e-6), name

"""What every metric says of every kind of relevance, for every name in the catalogue: a new file is
covered by being there. Rankings by loops are in the metric's own test."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.relevance import KINDS, LabelSets, Related, Relevance
from unseen.evaluation.evaluate import evaluate
from unseen.metrics.base import Clustering, PairScores, Rejection, Retrieval, Verification

RESULT: dict[str, Any] = {
    name: registry.find("metrics", name) for name in registry.names("metrics")
}
CLASSES = torch.tensor([0, 1, 1, 2, 2, 2, 0, 1, 3, 3, 2, 4])
X = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))

Kinds = Callable[[Tensor], dict[str, Relevance]]


def names(kind: type) -> list[str]:
    return [name for name, metric in RESULT.items() if issubclass(metric, kind)]


def scores(labels: Any, wanted: list[str]) -> dict[str, float]:
    result = evaluate(X, labels, metrics=wanted, missing="count", resamples=0)
    return {name: result.values[name].value for name in wanted}


def test_every_metric_is_of_one_of_four_kinds() -> None:
    kinds = (Retrieval, Clustering, Verification, Rejection)
    assert sorted(name for kind in kinds for name in names(kind)) == list(RESULT)


@pytest.mark.parametrize("kind", KINDS)
def test_retrieval_by_every_relevance_is_that_of_single_queries(kind: str, kinds: Kinds) -> None:
    """A query alone among those of which anybody knows, the same being class 1, others class 0."""
    relevance = kinds(CLASSES)[kind]
    items = relevance.of(torch.arange(12))
    plain = [name for name in names(Retrieval) if not RESULT[name].needs_grades]
    result = evaluate(X, items, metrics=plain, missing="count", resamples=0)
    for query in range(12):
        relation = relevance.of(torch.tensor([query])).to(items)
        known = (relation.same | relation.different)[0]
        known[query] = False
        alone = evaluate(
            X[query : query + 1],
            torch.ones(1, dtype=torch.int64),
            gallery_embeddings=X[known],
            gallery_labels=relation.same[0, known].long(),
            metrics=plain,
            missing="count",
            resamples=0,
        )
        for name in plain:
            expected, value = alone.per_query[name], result.per_query[name][query : query + 1]
            torch.testing.assert_close(value, expected, equal_nan=True, msg=f"{name} {query}")


@pytest.mark.parametrize("kind", KINDS)
def test_verification_by_every_relevance_is_that_of_all_pairs(kind: str, kinds: Kinds) -> None:
    relevance = kinds(CLASSES)[kind]
    unit = torch.nn.functional.normalize(X.double())
    pairs: dict[bool, list[float]] = {True: [], False: []}
    for i in range(12):
        for j in range(i):
            same, different, _ = relevance.relate(torch.tensor(i), torch.tensor(j))
            if same or different:
                pairs[bool(same)].append(float(unit[i] @ unit[j]))
    every = sorted(pairs[True] + pairs[False], reverse=True)
    counts = [torch.tensor([pairs[right].count(s) for s in every]) for right in (True, False)]
    wanted = names(Verification)
    for name, value in scores(relevance.of(torch.arange(12)), wanted).items():
        expected = RESULT[name]()(PairScores(torch.tensor(every), *counts))
        assert value == pytest.approx(expected, abs=1e-6), name


@pytest.mark.parametrize("kind", KINDS)
def test_graded_metrics_lie_between_nothing_and_everything(kind: str, kinds: Kinds) -> None:
    wanted = [name for name in names(Retrieval) if RESULT[name].needs_grades]
    assert wanted
    for value in scores(kinds(CLASSES)[kind].of(torch.arange(12)), wanted).values():
        assert 0 < value < 1


@pytest.mark.parametrize("kind", KINDS)
def test_clusterings_go_by_class(kind: str, kinds: Kinds) -> None:
    wanted = names(Clustering)
    assert scores(kinds(CLASSES)[kind].of(torch.arange(12)), wanted) == scores(CLASSES, wanted)


def test_clusterings_of_no_classes_are_refused() -> None:
    sets: Related = LabelSets(np.stack([CLASSES, CLASSES + 5], axis=1)).of(torch.arange(12))
    with pytest.raises(
        ValueError, match=r"^nmi can be left out: clusterings go by class, .*divided"
    ):
        scores(sets, ["recall@1", "nmi"])
    assert scores(sets, ["recall@1"])["recall@1"] == scores(CLASSES, ["recall@1"])["recall@1"]

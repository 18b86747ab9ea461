"""Queries, gallery and groups reach the evaluates as a slow count has them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.retrieval_task import RetrievalTask
from unseen.evaluation.retrieve import retrieve


def slow_recall(
    embeddings: Tensor,
    labels: list[int],
    query: list[int],
    gallery: list[int],
    groups: list[int],
) -> float:
    """The share of queries whose nearest allowed gallery item has their label."""
    unit = torch.nn.functional.normalize(embeddings.double())
    hits = []
    for q in query:
        allowed = [g for g in gallery if g != q and not (groups[g] == groups[q] >= 0)]
        if not any(labels[g] == labels[q] for g in allowed):
            continue
        best = max(allowed, key=lambda g: float(unit[q] @ unit[g]))
        hits.append(labels[best] == labels[q])
    return sum(hits) / len(hits) if hits else math.nan


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("parts", ["all", "query", "gallery", "both", "apart"])
def test_recall_is_that_of_a_loop(seed: int, parts: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(40, 5, generator=generator)
    labels = torch.randint(4, (40,), generator=generator)
    groups = torch.randint(-1, 6, (40,), generator=generator)
    order = torch.randperm(40, generator=generator)
    query = order[:15] if parts in ("query", "both", "apart") else None
    gallery = order[10:] if parts in ("gallery", "both") else None
    gallery = order[15:] if parts == "apart" else gallery
    task = RetrievalTask(labels, query, gallery, groups)
    score = evaluate(**task.arguments(embeddings), metrics=("recall@1",), resamples=0)
    wanted = slow_recall(
        embeddings,
        labels.tolist(),
        list(range(40)) if query is None else query.tolist(),
        list(range(40)) if gallery is None else gallery.tolist(),
        groups.tolist(),
    )
    assert score.values["recall@1"].value == pytest.approx(wanted, abs=1e-12)
    retrieve(**task.arguments(embeddings), depth=3)  # takes the same arguments


def test_scores_by_column_have_plain_names() -> None:
    embeddings = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) // 2
    task = RetrievalTask({"": labels, "family": labels // 5}, gallery=torch.arange(10, 20))
    request: dict[str, Any] = {"metrics": ("recall@1", "nmi"), "resamples": 0, "missing": "count"}
    both = evaluate(**task.arguments(embeddings), **request)
    for column, alone in (("", labels), ("family", labels // 5)):
        single = RetrievalTask(alone, gallery=torch.arange(10, 20)).arguments(embeddings)
        wanted = evaluate(**single, **request)
        assert both.by(column).to_dict() == wanted.to_dict()
        assert set(both.by(column).per_query) == {"recall@1", "nmi"}

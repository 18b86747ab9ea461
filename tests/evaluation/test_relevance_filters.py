"""A filter by relevance says of classes what the filter by class says; of pairs what is
known."""

import numpy as np
import pytest
import torch

from unseen.core.relevance import KnownPairs, Labels, Levels, Related
from unseen.evaluation.calibration import calibrate
from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.retrieve import retrieve

DRAW = torch.Generator().manual_seed(0)
X = torch.randint(-2, 3, (40, 3), generator=DRAW).float()  # many ties
Y = torch.randint(0, 9, (40,), generator=DRAW)
GROUPS = torch.randint(-1, 3, (40,), generator=DRAW)


def by_relevance(rows: torch.Tensor) -> Related:
    return Labels(Y.numpy()).of(rows)  # without classes: pair by pair


EVERYONE, SOME = torch.arange(40), torch.arange(0, 40, 3)
REQUEST = {
    "all": {},
    "groups": {"ignore_groups": GROUPS},
    "gallery": {"gallery_embeddings": X[SOME], "gallery": SOME},
}


@pytest.mark.parametrize("name", REQUEST)
def test_neighbors_and_ranks_are_those_of_the_classes(name: str) -> None:
    given = dict(REQUEST[name])
    rows = given.pop("gallery", None)
    answers = [{}, {}] if rows is None else [{"gallery_labels": of} for of in (Y[rows], rows)]
    if rows is not None:
        answers[1] = {"gallery_labels": by_relevance(rows)}  # type: ignore[dict-item]
    result = [
        retrieve(X, labels, 6, ranks=True, grades=True, **given, **theirs)  # type: ignore[arg-type]
        for labels, theirs in zip((Y, by_relevance(EVERYONE)), answers, strict=True)
    ]
    for key in ("indices", "similarities", "matches", "num_relevant", "ranks", "tied"):
        assert torch.equal(getattr(result[0], key), getattr(result[1], key)), key
    assert result[0].graded is not None
    assert result[1].graded is not None
    assert torch.equal(result[0].graded.ranks, result[1].graded.ranks)
    assert torch.equal(result[0].graded.ranks, result[0].ranks)


def test_scores_and_calibration_too() -> None:
    metrics = ("recall@1", "map", "ndcg@5", "roc_auc")
    plain = evaluate(X, Y, metrics=metrics, memory=2000, resamples=0)
    related = Labels(Y.numpy()).sharded(Y.numpy()).of(EVERYONE)
    for labels in (related, by_relevance(EVERYONE)):
        result = evaluate(X, labels, metrics=metrics, memory=2000, resamples=0)
        for metric in metrics:
            assert result.values[metric].value == pytest.approx(plain.values[metric].value)
    x = X + 0.01 * torch.randn(X.shape, generator=DRAW)
    one, two = calibrate(x, Y, fmr=0.1), calibrate(x, related, fmr=0.1)
    assert one == two
    levels = Levels(np.stack([Y.numpy() // 3, Y.numpy()], axis=1), 2).sharded(Y.numpy())
    assert calibrate(x, levels.of(EVERYONE), fmr=0.1) == one


def test_of_pairs_nobody_knows_nothing_is_evaluated() -> None:
    pairs = np.array([[i, j] for i in range(40) for j in range(i) if (i * j) % 4 == 1])
    same = np.array([bool(Y[i] == Y[j]) for i, j in pairs])
    known = KnownPairs(pairs, same, 40).sharded(Y.numpy())
    result = retrieve(X, known.of(EVERYONE), 5)
    listed = {frozenset(pair) for pair in pairs.tolist()}
    for q, items in enumerate(result.indices.tolist()):
        assert all(frozenset((q, item)) in listed for item in items if item >= 0)
    relation = known.of(EVERYONE).to()
    assert torch.equal(result.num_relevant, relation.same.sum(dim=1))
    made = calibrate(X + 0.01 * torch.randn(X.shape, generator=DRAW), known.of(EVERYONE), fmr=0.1)
    assert made.wrong_pairs == int((~same).sum())

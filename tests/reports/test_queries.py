"""The shown queries are those promised, checked against loops over every pair."""

import numpy as np
import pytest

from unseen.reports import queries
from unseen.reports.stored_run import TestEmbeddings as Items


def items(seed: int, num_items: int = 40) -> Items:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 8, num_items)
    labels[0] = 99  # alone
    embeddings = rng.normal(size=(100, 6))[labels] + rng.normal(size=(num_items, 6))
    return Items(embeddings.astype(np.float32), labels, np.arange(num_items))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_neighbors_and_hardest_by_loops(seed: int, normalize: bool) -> None:
    test = items(seed)
    result = queries.find(test, normalize)
    x = test.embeddings.astype(np.float64)
    if normalize:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    worst = []
    for i in range(len(test)):
        others = [j for j in range(len(test)) if j != i]
        near = sorted(
            others, key=lambda j: -x[i] @ x[j] if normalize else ((x[i] - x[j]) ** 2).sum()
        )
        assert result.positions[i].tolist() == near[: queries.NEAREST]
        relevant = sum(test.labels[j] == test.labels[i] for j in others)
        right = [test.labels[j] == test.labels[i] for j in near[: queries.NEAREST]]
        if relevant:
            fraction = sum(right) / min(relevant, queries.NEAREST)
            worst.append((fraction, 0 if right[0] else -result.similarities[i, 0] - 1e6, i))
    assert queries.hardest(result, 10) == [i for *_, i in sorted(worst)[:10]]


def test_draws_are_valid_and_repeat() -> None:
    result = queries.find(items(0), normalize=True)
    drawn, wrong = queries.random_draw(result, 12), queries.mistakes(result, 5)
    assert len(set(drawn)) == 12
    assert 0 not in drawn + wrong + queries.hardest(result, 40)  # alone in its class
    assert wrong
    assert not result.matches[wrong, 0].any()
    assert drawn == queries.random_draw(result, 12)


def test_closeness_in_words() -> None:
    test = Items(
        np.array([[3, 0], [0, 4], [3, 1]], dtype=np.float32), np.zeros(3, int), np.arange(3)
    )
    assert queries.find(test, normalize=True).closeness(0, 1) == "0.00"
    assert queries.find(test, normalize=False).closeness(0, 1) == "d 5"
    near = Items(np.array([[1, 0], [1, 0.05]], dtype=np.float32), np.zeros(2, int), np.arange(2))
    assert queries.find(near, normalize=True).closeness(0, 0) == "0.9988"

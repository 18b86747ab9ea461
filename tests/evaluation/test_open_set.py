"""Open sets against loops over queries and thresholds; splits by time; groups of unknowns."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from unseen.evaluation.metric_names import parse_metric, parse_rejection
from unseen.evaluation.open_set import (
    OPEN_SET,
    best_cut,
    best_threshold,
    by_time,
    draw_unknown,
    nearest_answers,
    open_set,
    point_at,
    rejection_curve,
)
from unseen.evaluation.retrieval_task import RetrievalTask


def clouds(
    seed: int, classes: int = 10, each: int = 8, spread: float = 0.5
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centers = torch.randn(classes, 6, generator=generator)
    return centers[labels] + spread * torch.randn(len(labels), 6, generator=generator), labels


def slow_answers(x: Tensor, y: Tensor, unknown: set[int]) -> list[tuple[float, bool, bool, int]]:
    """Similarity, right, known, label; ties go to the wrong ones."""
    x = x.double() / x.double().norm(dim=1, keepdim=True)
    rows = []
    for i in range(len(x)):
        own = int(y[i])
        others = [j for j in range(len(x)) if j != i and int(y[j]) not in unknown]
        sims = [(round(float(x[i] @ x[j]) * 2**20), int(y[j]) != own, j) for j in others]
        best = max(sims)
        known = any(int(y[j]) == own for j in others)
        rows.append((best[0] / 2**20, int(y[best[2]]) == own, known, own))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_answers_and_curve_are_those_of_loops(seed: int) -> None:
    x, y = clouds(seed)
    unknown = draw_unknown(y, seed)
    assert len(unknown) == 5
    keep = ~torch.isin(y, unknown)
    task = RetrievalTask(y, None, keep.nonzero()[:, 0])
    answers = nearest_answers(x, task, normalize=True)
    slow = slow_answers(x, y, set(unknown.tolist()))
    for place, row in enumerate(slow):
        assert float(answers.similarities[place]) == pytest.approx(row[0], abs=2e-6)
        assert (bool(answers.right[place]), bool(answers.known[place])) == row[1:3]
    for point in rejection_curve(answers)[::7]:
        at = point_at(answers, point.threshold)
        assert (at.far, at.dir) == pytest.approx((point.far, point.dir))
        assert (at.baks, at.baus) == pytest.approx((point.baks, point.baus))
        mine = [row for row in slow if not row[2]]
        believed = sum(row[0] >= point.threshold - 2e-6 for row in mine)
        assert point.far == pytest.approx(believed / len(mine))
    best = best_threshold(answers)
    reached = point_at(answers, best).balance
    assert reached >= max(point.balance for point in rejection_curve(answers)) - 1e-9


def test_what_is_measured_and_counted() -> None:
    x, y = clouds(0, spread=0.1)
    unknown = torch.tensor([1, 3, 5, 7, 9])
    known = ~torch.isin(y, unknown)
    cut = best_cut(x[known], y[known], normalize=True)
    result = open_set(x, y, unknown=unknown, thresholds={"mine": 0.9}, cut=cut, how="odd classes")
    assert (result.gallery, result.known_queries, result.unknown_queries) == (40, 40, 40)
    assert (result.known_classes, result.unknown_classes) == (5, 5)
    assert set(result.scores) == set(OPEN_SET)
    assert result.scores["unknown_auroc"].value > 0.95
    for score in result.scores.values():
        assert score.low <= score.value + 1e-9
        assert score.value <= score.high + 1e-9
    assert result.at["mine"].threshold == 0.9
    assert result.groups is not None
    assert (result.groups.classes, result.groups.items) == (5, 40)
    assert result.groups.number in (5, 6)
    assert result.groups.ari > 0.9
    assert open_set(x, y, unknown=unknown).groups is None
    fars = [point.far for point in result.curve]
    assert fars == sorted(fars)
    assert fars[-1] == 1.0


def test_a_split_by_time_has_unknowns_of_its_own() -> None:
    times = np.array([3, 1, 2, 2, 9, 8, 1, 7])
    query, gallery = by_time(times)
    assert times[gallery].max() < times[query].min()
    assert sorted([*query.tolist(), *gallery.tolist()]) == list(range(8))
    assert gallery.tolist() == [1, 2, 3, 6]
    x, y = clouds(1, classes=4, each=2, spread=0.01)
    labels = torch.tensor([0, 0, 1, 1, 2, 1, 3, 0])  # class 2 comes late
    result = open_set(x[y.argsort()], labels, query=query, gallery=gallery)
    assert (result.gallery, result.known_queries, result.unknown_queries) == (4, 3, 1)
    with pytest.raises(ValueError, match="all items have the same time"):
        by_time(np.zeros(4, dtype=np.int64))


def test_a_closed_set_is_no_open_one_and_metrics_are_named_where_they_belong() -> None:
    x, y = clouds(0)
    with pytest.raises(ValueError, match="there are no unknown ones"):
        open_set(x, y)
    with pytest.raises(ValueError, match="--open-set` measures it"):
        parse_metric("baks")
    with pytest.raises(ValueError, match="is no metric of an open set"):
        parse_rejection("recall@1")


def slow_groups(x: np.ndarray, height: float) -> list[set[int]]:
    """Join the two groups of the smallest mean distance, until that is larger than the cut."""
    groups = [{i} for i in range(len(x))]
    while len(groups) > 1:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]

        def mean(pair: tuple[int, int]) -> float:
            one, two = (groups[place] for place in pair)
            return float(np.mean([np.linalg.norm(x[i] - x[j]) for i in one for j in two]))

        nearest = min(pairs, key=mean)
        if mean(nearest) > height:
            break
        groups[nearest[1]] |= groups.pop(nearest[0])
    return groups


def test_groups_are_those_of_joining_one_by_one() -> None:
    x, y = clouds(3, classes=5, each=4, spread=0.6)
    unknown = torch.tensor([1, 2, 4])
    rows = torch.isin(y, unknown)
    points = x[rows].double() / x[rows].double().norm(dim=1, keepdim=True)
    for cut in (0.3, 0.6, 0.9):
        result = open_set(x, y, unknown=unknown, cut=cut).groups
        expected = slow_groups(points.numpy(), cut)
        assert result is not None
        assert result.number == sum(len(group) > 1 for group in expected)
        assigned = np.zeros(int(rows.sum()))
        for number, group in enumerate(expected):
            assigned[list(group)] = number
        assert result.ari == pytest.approx(adjusted_rand_score(y[rows], assigned))

"""Greedy coreset: the picks on a line, covering radius, distinct anchors and their classmates."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.samplers.greedy_coreset import GreedyCoresetSampler, farthest_first


class FirstIs(np.random.Generator):
    """A generator whose first whole number is known."""

    def __init__(self, first: int) -> None:
        super().__init__(np.random.PCG64(0))
        self.known = [first]

    def integers(self, *args: Any, **kwargs: Any) -> Any:
        return self.known.pop() if self.known else super().integers(*args, **kwargs)


def picks(rows: Tensor, number: int, first: int = 0, soft: bool = False) -> list[int]:
    groups = np.arange(len(rows))
    return farthest_first(rows, groups, number, FirstIs(first), soft).tolist()


def test_points_on_a_line() -> None:
    """Points 0, 1, 2, 10 from 0: 10, then 2, then 1."""
    assert picks(torch.tensor([[0.0], [1.0], [2.0], [10.0]]), 4) == [0, 3, 2, 1]


@pytest.mark.parametrize("soft", [False, True])
def test_picks_equal_a_slow_search_and_the_radius_never_grows(soft: bool) -> None:
    rows = torch.randn(60, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    result = picks(rows, 25, first=7, soft=soft)
    assert len(set(result)) == 25
    radius = np.inf
    for number in range(1, 25):
        gaps = [min(float((rows[i] - rows[j]).norm()) for j in result[:number]) for i in range(60)]
        if not soft:
            assert result[number] == int(np.argmax(gaps))
        else:
            better = sum(gap > gaps[result[number]] for gap in gaps)
            assert better <= 2, "one of the farthest 3 % of 60"
        assert max(gaps) <= radius
        radius = max(gaps)


def test_duplicates_in_the_pool_are_never_picked_twice() -> None:
    assert sorted(picks(torch.ones(6, 2), 6, first=2)) == [0, 1, 2, 3, 4, 5]


def test_a_second_anchor_of_a_class_comes_only_when_no_other_is_left() -> None:
    rows = torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0]])
    groups = np.array([0, 0, 1, 1, 2])
    result = farthest_first(rows, groups, 5, FirstIs(0)).tolist()
    assert result[:3] == [0, 4, 2]
    assert sorted(result) == [0, 1, 2, 3, 4], "each once"


def make(data: Any, embeddings: Tensor, batch_size: int, **given: Any) -> GreedyCoresetSampler:
    sampler = GreedyCoresetSampler(*data, batch_size, **given)
    sampler.fill(embeddings)
    return sampler


@pytest.mark.parametrize("distinct_classes", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_anchors_are_different_and_joined_by_their_class(
    classes_of: Callable[..., Any], soft: bool, distinct_classes: bool
) -> None:
    items, labels = classes_of([8] * 20 + [1, 1])
    embeddings = torch.randn(len(items), 5, generator=torch.Generator().manual_seed(0))
    sampler = make(
        (items, labels),
        embeddings,
        24,
        per_class=3,
        pool_size=64,
        soft=soft,
        distinct_classes=distinct_classes,
    )
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    assert sampler.left_out() == {"one image, no positive pair": 2}
    for batch in sampler:
        groups = [[label_of[position] for position in batch[i : i + 3]] for i in range(0, 24, 3)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len(set(batch)) == 24
        if distinct_classes:
            assert len({group[0] for group in groups}) == 8


def test_an_exhausted_class_repeats_its_images(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([2] * 12)
    sampler = make(
        (items, labels),
        torch.randn(24, 4, generator=torch.Generator().manual_seed(0)),
        32,
        per_class=4,
        pool_size=32,
    )
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    for batch in sampler:
        counts = Counter(label_of[position] for position in batch)
        assert all(count % 4 == 0 for count in counts.values())


def test_a_batch_covers_the_space_better_than_a_random_one() -> None:
    """The released code's batches would fail here: it looks its picks up in another pool."""
    labels = np.arange(600) // 2
    draw = torch.Generator().manual_seed(4)
    rows = torch.randn(600, 8, generator=draw)
    rows[:500] *= 0.1  # most of the pool is crowded together
    sampler = make((np.arange(600), labels), rows, 40, per_class=2, pool_size=600, normalize=False)
    chosen = np.array(list(sampler))
    outer = (chosen[:, ::2] >= 500).mean()
    assert outer > 0.9, "anchors lie outside the crowd, where 1 in 6 items is"


def test_unit_rows_are_the_default(classes_of: Callable[..., Any]) -> None:
    items, labels = classes_of([6] * 8)
    rows = torch.randn(48, 4, generator=torch.Generator().manual_seed(2))
    lengths = torch.linspace(0.1, 9, 48)[:, None]
    given = {"per_class": 2, "pool_size": 48}
    plain, scaled = (make((items, labels), r, 8, **given) for r in (rows, rows * lengths))
    assert list(plain) == list(scaled)
    raw = make((items, labels), rows * lengths, 8, **given, normalize=False)
    assert list(raw) != list(plain)


def test_bad_values_say_what_to_do(classes_of: Callable[..., Any]) -> None:
    data = classes_of([3] * 5)
    with pytest.raises(ValueError, match="pool_size must be at least batch_size=10, got 8"):
        GreedyCoresetSampler(*data, 10, pool_size=8)
    with pytest.raises(ValueError, match="refresh_every must be 0"):
        GreedyCoresetSampler(*data, 10, refresh_every=-1)
    with pytest.raises(
        ValueError, match="needs 20 images of classes with at least two, there are 15"
    ):
        GreedyCoresetSampler(*data, 40, per_class=2)
    with pytest.raises(ValueError, match="can be drawn are 5"):
        GreedyCoresetSampler(*data, 12, per_class=2, distinct_classes=True)

import itertools
import math

import numpy as np
import pytest
import torch

from unseen.statistics import bootstrap, class_average, compare, over_seeds


def test_bootstrap_of_a_mean_is_near_the_normal_interval() -> None:
    values = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)).double()
    for column, interval in enumerate(bootstrap(values, resamples=4000)):
        error = 1.96 * float(values[:, column].std()) / math.sqrt(2000)
        assert interval.value == pytest.approx(float(values[:, column].mean()))
        assert interval.low == pytest.approx(interval.value - error, abs=0.1 * error)
        assert interval.high == pytest.approx(interval.value + error, abs=0.1 * error)


def test_bootstrap_of_few_values_by_every_possible_draw() -> None:
    """Three values have 27 draws; quantiles of their means must come out."""
    values = torch.tensor([0.0, 1.0, 5.0]).double()
    means = np.array([np.mean(draw) for draw in itertools.product(values.tolist(), repeat=3)])
    found = bootstrap(values[:, None], resamples=20_000, level=0.6)[0]
    assert found.low == pytest.approx(np.quantile(means, 0.2), abs=1e-9)
    assert found.high == pytest.approx(np.quantile(means, 0.8), abs=1e-9)


def test_bootstrap_over_groups_by_loops() -> None:
    """Groups of unlike size: a drawn group brings all its members."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 30, (400,), generator=generator) * 2**40
    values = torch.rand(30, generator=generator).double()[groups // 2**40]
    found = bootstrap(values[:, None], groups, resamples=3000)[0]
    rng = np.random.default_rng(0)
    members = [values[groups == g].numpy() for g in groups.unique()]
    means = [
        np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))]).mean()
        for _ in range(3000)
    ]
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=0.01)
    assert found.high == pytest.approx(np.quantile(means, 0.975), abs=0.01)


def test_covers_the_truth_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for seed in range(200):
        sample = (torch.rand(300, 1, generator=generator) < 0.3).double()
        interval = bootstrap(sample, resamples=400, seed=seed)[0]
        inside += interval.low <= 0.3 <= interval.high
    assert 0.90 < inside / 200 < 0.99


def test_lone_queries_are_left_out() -> None:
    values = torch.tensor([[1.0], [math.nan], [0.0]])
    assert bootstrap(values)[0].value == 0.5
    assert math.isnan(bootstrap(torch.full((3, 1), math.nan))[0].value)
    assert math.isnan(bootstrap(values, resamples=0)[0].low)


def test_same_seed_same_interval() -> None:
    values = torch.rand(50, 1, generator=torch.Generator().manual_seed(0))
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) != bootstrap(values, seed=4)


def test_class_average() -> None:
    values = torch.tensor([[1.0], [0.0], [1.0], [math.nan]])
    assert class_average(values, torch.tensor([5, 5, 9, 9])).tolist() == [0.75]
    assert class_average(values[3:], torch.tensor([1])).isnan().all()


def test_sign_flips_by_every_possible_sign() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(10, generator=generator).double()
    second = first + 0.15 * torch.randn(10, generator=generator).double() + 0.08
    difference = (second - first).tolist()
    reached = [
        abs(sum(s * d for s, d in zip(signs, difference, strict=True)))
        >= abs(sum(difference)) - 1e-9
        for signs in itertools.product((-1, 1), repeat=10)
    ]
    found = compare(first, second, resamples=40_000)
    assert found.p == pytest.approx(sum(reached) / 1024, abs=0.01)
    assert found.difference.value == pytest.approx(sum(difference) / 10)


def test_comparison_names_the_queries_that_changed() -> None:
    first = torch.tensor([1.0, 0.0, 1.0, math.nan, 0.0])
    second = torch.tensor([1.0, 1.0, 0.0, math.nan, 1.0])
    found = compare(first, second)
    assert found.improved.tolist() == [1, 4]
    assert found.worsened.tolist() == [2]
    assert found.difference.value == pytest.approx(0.25)


def test_equal_methods_are_not_different() -> None:
    values = torch.rand(100)
    found = compare(values, values)
    assert found.p == 1.0
    assert found.difference.value == found.difference.low == found.difference.high == 0.0


def test_groups_make_a_comparison_more_careful() -> None:
    """All pictures of a class change together: ten classes, not a hundred pictures."""
    groups = torch.arange(10).repeat_interleave(10)
    change = torch.tensor([1, 1, 1, 1, 1, 1, 1, -1, -1, -1.0])[groups]
    first = torch.zeros(100)
    assert compare(first, change).p < 0.01
    assert compare(first, change, groups).p > 0.1


def test_p_values_are_even_when_nothing_differs() -> None:
    generator = torch.Generator().manual_seed(0)
    small = 0
    for seed in range(200):
        noise = torch.randn(40, generator=generator)
        small += compare(torch.zeros(40), noise, resamples=300, seed=seed).p <= 0.1
    assert 0.05 < small / 200 < 0.16


def test_over_seeds() -> None:
    found = over_seeds([62.5, 63.5, 62.0, 64.0, 63.0])
    assert found.mean == pytest.approx(63.0)
    assert found.std == pytest.approx(0.790569, abs=1e-6)
    assert found.high - found.mean == pytest.approx(2.776445 * 0.790569 / math.sqrt(5), abs=1e-5)
    assert math.isnan(over_seeds([1.0]).std)
    with pytest.raises(ValueError, match="at least one"):
        over_seeds([])


def test_comparison_needs_the_same_queries() -> None:
    with pytest.raises(ValueError, match="same queries"):
        compare(torch.zeros(3), torch.zeros(4))

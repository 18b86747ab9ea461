import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from unseen.statistics import POWER, bootstrap, class_average, compare, crossed, over_seeds


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


def by_loops(table: list[list[float]], counts: list[int]) -> tuple[float, float, float]:
    """Mean, error and degrees of freedom of a table of seeds and classes, number by number."""
    seeds, classes, queries = len(table), len(counts), sum(counts)
    mean = sum(table[s][c] * counts[c] for s in range(seeds) for c in range(classes))
    mean /= seeds * queries
    u = [
        [(table[s][c] - mean) * counts[c] * classes / queries for c in range(classes)]
        for s in range(seeds)
    ]
    of_seed = [sum(u[s]) / classes for s in range(seeds)]
    of_class = [sum(u[s][c] for s in range(seeds)) / seeds for c in range(classes)]
    by_seed = by_class = left = 0.0
    for s in range(seeds):
        by_seed += classes * of_seed[s] ** 2 / (seeds - 1)
    for c in range(classes):
        by_class += seeds * of_class[c] ** 2 / (classes - 1)
    for s in range(seeds):
        for c in range(classes):
            left += (u[s][c] - of_seed[s] - of_class[c]) ** 2 / ((seeds - 1) * (classes - 1))
    most = max(by_seed + by_class - left, by_seed, by_class)
    freedom = most**2 / (
        by_seed**2 / (seeds - 1)
        + by_class**2 / (classes - 1)
        + left**2 / ((seeds - 1) * (classes - 1))
    )
    return mean, math.sqrt(most / seeds / classes), max(freedom, min(seeds, classes) - 1)


def noncentrality(freedom: float) -> float:
    """Where a two-sided t-test sees a positive effect in 80 % of all cases, by the integral over
    the chi distribution of the error."""
    t, width = stats.t.ppf(0.975, freedom), 1e-3
    errors = np.arange(width / 2, 6, width)
    density = stats.chi.pdf(errors * math.sqrt(freedom), freedom) * math.sqrt(freedom) * width
    low, high = 0.0, 30.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        seen = float((density * stats.norm.sf(t * errors - middle)).sum())
        low, high = (middle, high) if seen < 0.8 else (low, middle)
    return low


def bias(freedom: float) -> float:
    """The mean of a standard deviation over its truth."""
    width = 1e-3
    errors = np.arange(width / 2, 6, width)
    density = stats.chi.pdf(errors * math.sqrt(freedom), freedom) * math.sqrt(freedom) * width
    return float((errors * density).sum())


@pytest.mark.parametrize("spreads", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.5), (0.2, 0.4)])
def test_the_effect_over_seeds_and_classes_by_loops(spreads: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    table = spreads[0] * rng.normal(size=(4, 1)) + spreads[1] * rng.normal(size=(1, 9))
    table = table + 0.5 * rng.normal(size=(4, 9)) + 0.1
    counts = rng.integers(5, 60, 9)
    found = crossed(table, counts)
    mean, error, freedom = by_loops(table.tolist(), counts.tolist())
    assert found.value == pytest.approx(mean)
    t = stats.t(freedom)
    assert found.high - found.value == pytest.approx(t.ppf(0.975) * error)
    assert found.detectable == pytest.approx(noncentrality(freedom) * error / bias(freedom))
    assert (found.seeds, found.classes) == (4, 9)
    assert crossed(table, counts, level=0.99).half == pytest.approx(t.ppf(0.995) * error)


def test_one_seed_has_an_interval_over_classes_and_one_class_over_seeds() -> None:
    values = np.random.default_rng(0).normal(size=12)
    spread = over_seeds(values)
    for table in (values[None], values[:, None]):
        found = crossed(table)
        assert (found.low, found.high) == pytest.approx((spread.low, spread.high))


@pytest.mark.parametrize("table", [[[0.3]], [[0.3, math.nan], [0.1, 0.2]]])
def test_a_single_number_or_nan_has_no_interval(table: list[list[float]]) -> None:
    found = crossed(table)
    assert all(map(math.isnan, (found.low, found.high, found.detectable)))


def test_differences_without_spread_have_an_interval_of_no_width() -> None:
    found = crossed(np.full((3, 5), 0.25))
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)
    assert found.detectable == 0


STUDIES = 400


def tables_of(effect: float, seeds: int, classes: int, counts: np.ndarray) -> np.ndarray:
    """Synthetic studies with a spread of their own over seeds and over classes, and a rest that is
    smaller where a class has more queries."""
    rng = np.random.default_rng(7)
    by_seed = 0.01 * rng.normal(size=(STUDIES, seeds, 1))
    by_class = 0.04 * rng.normal(size=(STUDIES, 1, classes))
    rest = rng.normal(size=(STUDIES, seeds, classes)) * np.sqrt(0.3 / counts)
    return effect + by_seed + by_class + rest


def test_the_share_of_studies_that_see_an_effect_is_the_stated_power() -> None:
    """2.37 points is what studies of five seeds and a hundred classes say they would see."""
    counts = np.random.default_rng(1).integers(20, 60, 100)
    found = [crossed(table, counts) for table in tables_of(0.0237, 5, 100, counts)]
    assert np.mean([each.detectable for each in found]) == pytest.approx(0.0237, rel=0.03)
    low, high = stats.binom.interval(0.95, STUDIES, POWER)
    assert low <= sum(each.low > 0 for each in found) <= high
    assert not any(each.high < 0 for each in found)


@pytest.mark.parametrize("seeds", [3, 5])
def test_without_an_effect_few_studies_see_one_and_their_own_power_holds(seeds: int) -> None:
    """Given the effect that it says it would see, a study sees it in 80 % of all cases, or more
    often: its error is known from few seeds, and the effect is set for the true one."""
    counts = np.random.default_rng(1).integers(20, 60, 60)
    found = [crossed(table, counts) for table in tables_of(0.0, seeds, 60, counts)]
    assert sum(each.low > 0 or each.high < 0 for each in found) <= 0.07 * STUDIES
    low, high = (
        stats.binom.interval(0.95, STUDIES, share)[i] for i, share in enumerate((POWER, 0.87))
    )
    assert low <= sum(each.low + each.detectable > 0 for each in found) <= high

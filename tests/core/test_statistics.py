import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from unseen.core.statistics import (
    POWER,
    bootstrap,
    class_average,
    compare,
    crossed,
    over_seeds,
    simultaneous,
)


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
    for level in (0.5, 0.6):
        result = bootstrap(values[:, None], resamples=20_000, level=level)[0]
        t = stats.t.ppf((1 + level) / 2, freedom_of([value - 2 for value in values.tolist()]))
        tail = stats.norm.cdf(-math.sqrt(3 / 2) * t)
        assert result.low == pytest.approx(np.quantile(means, tail), abs=1e-9)
        assert result.high == pytest.approx(np.quantile(means, 1 - tail), abs=1e-9)


def test_bootstrap_over_groups_by_loops() -> None:
    """Groups of unlike size: a drawn group brings all its members."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 30, (400,), generator=generator) * 2**40
    values = torch.rand(30, generator=generator).double()[groups // 2**40]
    result = bootstrap(values[:, None], groups, resamples=3000)[0]
    rng = np.random.default_rng(0)
    members = [values[groups == g].numpy() for g in groups.unique()]
    means = [
        np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))]).mean()
        for _ in range(3000)
    ]
    mean = float(values.mean())
    t = stats.t.ppf(0.975, freedom_of([float((each - mean).sum()) for each in members]))
    tail = stats.norm.cdf(-math.sqrt(30 / 29) * t)
    assert result.low == pytest.approx(np.quantile(means, tail), abs=0.01)
    assert result.high == pytest.approx(np.quantile(means, 1 - tail), abs=0.01)


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
    result = compare(first, second, resamples=40_000)
    assert result.p == pytest.approx(sum(reached) / 1024, abs=0.01)
    assert result.difference.value == pytest.approx(sum(difference) / 10)


def test_comparison_names_the_queries_that_changed() -> None:
    first = torch.tensor([1.0, 0.0, 1.0, math.nan, 0.0])
    second = torch.tensor([1.0, 1.0, 0.0, math.nan, 1.0])
    result = compare(first, second)
    assert result.improved.tolist() == [1, 4]
    assert result.worsened.tolist() == [2]
    assert result.difference.value == pytest.approx(0.25)


def test_equal_methods_are_not_different() -> None:
    values = torch.rand(100)
    result = compare(values, values)
    assert result.p == 1.0
    assert result.difference.value == result.difference.low == result.difference.high == 0.0


def test_groups_make_a_comparison_more_careful() -> None:
    """All images of a class change together: ten classes, not a hundred images."""
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
    result = over_seeds([62.5, 63.5, 62.0, 64.0, 63.0])
    assert result.mean == pytest.approx(63.0)
    assert result.std == pytest.approx(0.790569, abs=1e-6)
    assert result.high - result.mean == pytest.approx(2.776445 * 0.790569 / math.sqrt(5), abs=1e-5)
    assert math.isnan(over_seeds([1.0]).std)
    with pytest.raises(ValueError, match="at least one"):
        over_seeds([])


def test_comparison_needs_the_same_queries() -> None:
    with pytest.raises(ValueError, match="same queries"):
        compare(torch.zeros(3), torch.zeros(4))


def by_loops(
    table: list[list[float]], counts: list[int]
) -> tuple[float, tuple[float, float, float], tuple[float, float]]:
    """Mean, its variances and degrees of freedom, of a table of seeds and classes, by numbers."""
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
        by_seed += of_seed[s] ** 2 / (seeds * (seeds - 1))
    for c in range(classes):
        by_class += of_class[c] ** 2 / (classes * (classes - 1))
    for s in range(seeds):
        for c in range(classes):
            rest = u[s][c] - of_seed[s] - of_class[c]
            left += rest**2 / ((seeds - 1) * (classes - 1) * seeds * classes)
    return mean, (by_seed, by_class, left), (seeds - 1, freedom_of(of_class))


def freedom_of(deviations: list[float]) -> float:
    """Of a variance from so many numbers: fewer where a few of them are most of it."""
    squares = fourths = 0.0
    for each in deviations:
        squares += each**2
        fourths += each**4
    uneven = fourths / squares**2 - 1 / len(deviations)
    most = len(deviations) - 1
    return most if uneven <= 2 / most else 2 / uneven


def width_by_loops(
    variances: tuple[float, float, float], free: tuple[float, float], level: float
) -> tuple[float, float]:
    """Half of the interval and the detectable effect."""
    t = [stats.t.ppf((1 + level) / 2, each) for each in free]
    ways = [(variances[0], max(variances[1] - variances[2], 0.0)), (0.0, variances[1])]
    squares = [t[0] ** 2 * way[0] + t[1] ** 2 * way[1] for way in ways]
    one, two = ways[0] if squares[0] >= squares[1] else ways[1]
    half, error = math.sqrt(max(squares)), math.sqrt(one + two)
    spread = (t[0] ** 2 * one) ** 2 / free[0] + (t[1] ** 2 * two) ** 2 / free[1]
    freedom = half**4 / spread
    return half, noncentrality(freedom, half / error) * error / bias(freedom)


def noncentrality(freedom: float, beyond: float) -> float:
    """Where a mean over its error is beyond it in 80 % of all cases, by the integral over the chi
    distribution of the error."""
    width = 1e-3
    errors = np.arange(width / 2, 6, width)
    density = stats.chi.pdf(errors * math.sqrt(freedom), freedom) * math.sqrt(freedom) * width
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        seen = float((density * stats.norm.sf(beyond * errors - middle)).sum())
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
    result = crossed(table, counts)
    mean, variances, free = by_loops(table.tolist(), counts.tolist())
    assert result.value == pytest.approx(mean)
    assert result.variances == pytest.approx(variances)
    assert result.freedom == pytest.approx(free)
    half, seen = width_by_loops(variances, free, 0.95)
    assert result.high - result.value == pytest.approx(half)
    assert result.detectable == pytest.approx(seen)
    assert (result.seeds, result.classes) == (4, 9)


@pytest.mark.parametrize("pairs", [3, 10])
def test_intervals_that_hold_together_by_loops(pairs: int) -> None:
    rng = np.random.default_rng(1)
    spreads = np.array([0.5, 1.0, 1.0, 6.0])[:, None, None]
    tables = 0.01 * spreads * rng.normal(size=(4, 3, 1)) + 0.05 * rng.normal(size=(4, 3, 40))
    alone = [crossed(table) for table in tables]
    result = [each for each in simultaneous([*alone, None], pairs) if each]
    parts = [by_loops(table.tolist(), [1] * 40) for table in tables]
    shared = sum(variances[0] for _, variances, _ in parts) / 4
    shorter = set()
    for each, (mean, own, free) in zip(result, parts, strict=True):
        ways = [(own, free), ((max(own[0], shared), *own[1:]), (free[0] * 8 / 5, free[1]))]
        widths = [width_by_loops(*way, 1 - 0.05 / pairs) for way in ways]
        half, seen = min(widths)
        shorter.add(widths.index(min(widths)))
        assert each.value == pytest.approx(mean)
        assert each.half == pytest.approx(half)
        assert each.detectable == pytest.approx(seen)
    assert shorter == {0, 1}


def test_one_pair_keeps_its_interval_and_no_number_stays_none() -> None:
    result = crossed(np.random.default_rng(0).normal(size=(3, 20)))
    assert simultaneous([result], 1) == [result]
    assert simultaneous([None], 1) == [None]
    single = crossed([[0.3]])
    assert math.isnan(simultaneous([single, result], 2)[0].low)


def test_classes_that_carry_most_of_the_spread_are_few() -> None:
    """One class in a hundred differs: what is known of their spread is known from one."""
    table = np.zeros((3, 100))
    table[:, 7] = 1.0
    assert crossed(table).freedom[1] < 2.1
    assert crossed(table).high > 0.05
    even = np.tile([1.0, -1.0], 50)[None]
    assert crossed(even).freedom[1] == pytest.approx(99)


def test_one_seed_has_an_interval_over_classes_and_one_class_over_seeds() -> None:
    values = np.linspace(-1, 1, 12)  # no few of them are most of the spread
    spread = over_seeds(values)
    for table in (values[None], values[:, None]):
        result = crossed(table)
        assert (result.low, result.high) == pytest.approx((spread.low, spread.high))


@pytest.mark.parametrize("table", [[[0.3]], [[0.3, math.nan], [0.1, 0.2]]])
def test_a_single_number_or_nan_has_no_interval(table: list[list[float]]) -> None:
    result = crossed(table)
    assert all(map(math.isnan, (result.low, result.high, result.detectable)))


def test_differences_without_spread_have_an_interval_of_no_width() -> None:
    result = crossed(np.full((3, 5), 0.25))
    assert (result.value, result.low, result.high) == (0.25, 0.25, 0.25)
    assert result.detectable == 0


STUDIES = 1000


def tables_of(effect: float, seeds: int, classes: int, counts: np.ndarray) -> np.ndarray:
    """Synthetic studies with a spread of their own over seeds and over classes, and a rest that is
    smaller where a class has more queries."""
    rng = np.random.default_rng(7)
    by_seed = 0.01 * rng.normal(size=(STUDIES, seeds, 1))
    by_class = 0.04 * rng.normal(size=(STUDIES, 1, classes))
    rest = rng.normal(size=(STUDIES, seeds, classes)) * np.sqrt(0.3 / counts)
    return effect + by_seed + by_class + rest


def test_the_fraction_of_studies_that_see_an_effect_is_the_stated_power() -> None:
    """2.53 points is what studies of five seeds and a hundred classes say they would see."""
    counts = np.random.default_rng(1).integers(20, 60, 100)
    result = [crossed(table, counts) for table in tables_of(0.0253, 5, 100, counts)]
    assert np.mean([each.detectable for each in result]) == pytest.approx(0.0253, rel=0.03)
    low, high = stats.binom.interval(0.95, STUDIES, POWER)
    assert low <= sum(each.low > 0 for each in result) <= high
    assert not any(each.high < 0 for each in result)


@pytest.mark.parametrize(("seeds", "most"), [(3, 0.91), (5, 0.87)])
def test_without_an_effect_few_studies_see_one_and_their_own_power_holds(
    seeds: int, most: float
) -> None:
    """Given the effect that it says it would see, a study sees it in 80 % of all cases, or more
    often: its error is known from few seeds, and the effect is set for the true one."""
    counts = np.random.default_rng(1).integers(20, 60, 60)
    result = [crossed(table, counts) for table in tables_of(0.0, seeds, 60, counts)]
    assert sum(each.low > 0 or each.high < 0 for each in result) <= 0.07 * STUDIES
    low, high = (
        stats.binom.interval(0.95, STUDIES, fraction)[i] for i, fraction in enumerate((POWER, most))
    )
    assert low <= sum(each.low + each.detectable > 0 for each in result) <= high

"""Roth's figure 4 from the published table; intervals and lines against their definitions."""

import math

import numpy as np
import pytest

from unseen.reproductions import numbers as published
from unseen.studies.correlation import matrix, pearson

MEASURES = ("r1", "r2", "nmi", "f1", "map")
FIGURE_4 = {  # R@1 with R@2, NMI, F1, mAP; NMI with F1 and with mAP
    "cub200": (0.98, 0.86, 0.83, 0.76, 0.99, 0.50),
    "cars196": (1.00, 0.92, 0.91, 0.85, 0.99, 0.71),
    "online_products": (1.00, 0.94, 0.94, 0.99, 1.00, 0.97),
}
# With all losses the weakest number, NMI with mAP on CUB, is 0.54 instead of 0.50. Without these
# three every number agrees to its last digit; they were found by trying which to leave out, so that
# this fits the figure and proves nothing about what it was drawn from.
NOT_IN_THE_FIGURE = ("GenLifted", "Margin (D, beta = 1.2 )", "Softmax")


def measured(dataset: str, left_out: tuple[str, ...] = ()) -> list[float]:
    rows = [
        row
        for row in published.table("revisit_objectives")
        if row["dataset"] == dataset
        and row["approach"] not in ("Imagenet", *left_out)
        and not str(row["approach"]).startswith("R-")
    ]
    table = matrix({name: [float(str(row[name])) for row in rows] for name in MEASURES})
    return [table[0][i].r for i in range(1, 5)] + [table[2][3].r, table[2][4].r]


@pytest.mark.parametrize("dataset", FIGURE_4)
def test_figure_4(dataset: str) -> None:
    every_loss = measured(dataset)
    assert every_loss[:5] == pytest.approx(FIGURE_4[dataset][:5], abs=0.03)
    assert every_loss[5] == pytest.approx(FIGURE_4[dataset][5], abs=0.04)
    assert measured(dataset, NOT_IN_THE_FIGURE) == pytest.approx(FIGURE_4[dataset], abs=0.0055)


def test_r_interval_and_line_by_hand() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 3.0, 2.0, 5.0, 4.0]
    result = pearson(x, y)
    assert result.r == pytest.approx(0.8)
    assert (result.slope, result.intercept) == pytest.approx((0.8, 0.6))
    half = 1.959964 / math.sqrt(2)
    ends = (math.tanh(math.atanh(0.8) - half), math.tanh(math.atanh(0.8) + half))
    assert (result.low, result.high) == pytest.approx(ends, abs=1e-6)


def test_the_interval_holds_the_truth_about_95_times_in_100() -> None:
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        x = generator.normal(size=20)
        y = 0.6 * x + 0.8 * generator.normal(size=20)
        result = pearson(x.tolist(), y.tolist())
        held += result.low <= 0.6 <= result.high
    assert 366 <= held <= 394


def test_missing_values_and_constants() -> None:
    result = pearson([1.0, 2.0, math.nan, 4.0], [2.0, 4.0, 0.0, 8.0])
    assert result.count == 3
    assert result.r == pytest.approx(1.0)
    assert math.isnan(result.low)
    assert math.isnan(pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).r)
    with pytest.raises(ValueError, match="same methods"):
        pearson([1.0], [1.0, 2.0])

"""The counts every benchmark is held to are those its authors published."""

import pytest

from unseen.core import registry
from unseen.data.benchmarks.benchmark import Counts

PUBLISHED = {
    "cub200": Counts(100, 5_864, 100, 5_924),
    "cars196": Counts(98, 8_054, 98, 8_131),
    "online_products": Counts(11_318, 59_551, 11_316, 60_502),
    "inshop": Counts(3_997, 25_882, 3_985, 14_218 + 12_612, query=14_218, gallery=12_612),
    "omniglot": Counts(964, 964 * 20, 659, 659 * 20),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts(name: str) -> None:
    benchmark = registry.find("data", name)
    assert benchmark.expected == PUBLISHED[name]  # type: ignore[attr-defined]


def test_totals() -> None:
    totals = {name: counts.train + counts.test for name, counts in PUBLISHED.items()}
    assert totals == {
        "cub200": 11_788,
        "cars196": 16_185,
        "online_products": 120_053,
        "inshop": 52_712,
        "omniglot": 32_460,
    }

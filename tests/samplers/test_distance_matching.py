"""Distance matching: the earth mover's distance, the histograms, and that the best candidate
wins."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor

from unseen.core.geometry import distance
from unseen.samplers.distance_matching import (
    NUM_BINS,
    DistanceMatchingSampler,
    binned,
    earth_movers,
    histograms,
)


def slow_histogram(rows: Tensor, low: float, high: float) -> np.ndarray[Any, Any]:
    gaps = [float((rows[i] - rows[j]).norm()) for i in range(len(rows)) for j in range(i)]
    counts, _ = np.histogram(np.clip(gaps, low, high), bins=NUM_BINS, range=(low, high))
    return counts / counts.sum()


def test_moving_all_mass_by_k_bins_costs_k_widths() -> None:
    """(1,0,0) against (0,0,1): two widths, where heights taken as samples would cost nothing."""
    first, last = torch.tensor([1.0, 0, 0]), torch.tensor([0, 0, 1.0])
    assert float(earth_movers(first, last, 0.5)) == 1.0
    assert float(earth_movers(first, first, 0.5)) == 0.0
    for places in range(5):
        shifted = torch.zeros(9).index_fill(0, torch.tensor([places]), 1.0)
        assert float(earth_movers(shifted, torch.eye(9)[0], 0.25)) == 0.25 * places


def test_equals_scipy_on_bin_centers() -> None:
    generator = np.random.default_rng(0)
    one, two = generator.dirichlet(np.ones(NUM_BINS), size=2)
    centers = 0.3 * np.arange(NUM_BINS)
    ours = earth_movers(torch.from_numpy(one), torch.from_numpy(two), 0.3)
    assert float(ours) == pytest.approx(wasserstein_distance(centers, centers, one, two), rel=1e-9)


def test_histograms_equal_a_slow_count() -> None:
    pool = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bins, width = binned(distance(pool))
    gaps = torch.pdist(pool)
    low, high = float(gaps.min()), float(gaps.max())
    assert width == pytest.approx((high - low) / NUM_BINS)
    candidates = torch.tensor([[0, 3, 5, 9, 11, 30], [39, 1, 2, 8, 7, 6]])
    inside = bins[candidates[:, :, None], candidates[:, None, :]]
    for result, rows in zip(histograms(inside), pool[candidates], strict=True):
        np.testing.assert_allclose(result.numpy(), slow_histogram(rows, low, high), atol=1e-12)
    np.testing.assert_allclose(
        histograms(bins[None])[0].numpy(), slow_histogram(pool, low, high), atol=1e-12
    )


def make(data: Any, rows: Tensor, batch_size: int, **given: Any) -> DistanceMatchingSampler:
    sampler = DistanceMatchingSampler(*data, batch_size, **given)
    sampler.fill(rows)
    return sampler


@pytest.mark.parametrize("moments", [0.0, 2.0])
def test_the_cheapest_candidate_is_chosen_at_its_slow_cost(
    classes_of: Callable[..., Any], moments: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = classes_of([6] * 12)
    rows = torch.randn(72, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sampler = make(data, rows.float(), 12, per_class=2, pool_size=48, moments=moments)
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    costs = DistanceMatchingSampler.costs

    def spy(self: DistanceMatchingSampler, pool: Tensor, candidates: Tensor) -> Tensor:
        result = costs(self, pool, candidates)
        seen.append((pool, candidates, result))
        return result

    monkeypatch.setattr(DistanceMatchingSampler, "costs", spy)
    place = {item: i for i, item in enumerate(data[0].tolist())}
    batches = list(sampler)
    for batch, (pool, candidates, result) in zip(batches, seen, strict=True):
        exact = pool.double()
        gaps = torch.pdist(exact)
        low, high = float(gaps.min()), float(gaps.max())
        reference = slow_histogram(exact, low, high)
        for candidate, cost in zip(exact[candidates], result, strict=True):
            gap = np.cumsum(slow_histogram(candidate, low, high) - reference)
            slow = (high - low) / NUM_BINS * np.abs(gap).sum()
            slow += moments * float((candidate.mean(0) - exact.mean(0)).norm())
            slow += moments * float((candidate.std(0) - exact.std(0)).norm())
            # in float32 a distance on an edge may fall into the next bin
            assert float(cost) == pytest.approx(slow, abs=2e-3)
        unit = torch.nn.functional.normalize(rows, dim=1)[[place[p] for p in batch]]
        chosen = exact[candidates[int(result.argmin())]]
        torch.testing.assert_close(unit, chosen, atol=1e-6, rtol=0)


def test_batches_are_groups_of_different_classes_and_images(
    classes_of: Callable[..., Any],
) -> None:
    items, labels = classes_of([4, 9, 2, 1, 6, 5, 5, 7])
    sampler = make(
        (items, labels),
        torch.randn(39, 4, generator=torch.Generator().manual_seed(0)),
        12,
        per_class=3,
        pool_size=30,
        num_candidates=4,
    )
    label_of = dict(zip(items.tolist(), labels.tolist(), strict=True))
    assert sampler.left_out() == {"one image, no positive pair": 1, "fewer than 3 images": 1}
    for batch in sampler:
        assert len(set(batch)) == 12
        assert set(Counter(label_of[position] for position in batch).values()) == {3}


def test_more_candidates_come_nearer_to_the_pool(classes_of: Callable[..., Any]) -> None:
    data = classes_of([8] * 30)
    rows = torch.randn(240, 6, generator=torch.Generator().manual_seed(5))
    place = {item: i for i, item in enumerate(data[0].tolist())}
    unit = torch.nn.functional.normalize(rows.double(), dim=1)
    everything = torch.pdist(unit).sort().values.numpy()

    def typical_gap(num_candidates: int) -> float:
        sampler = make(data, rows, 12, pool_size=240, num_candidates=num_candidates)
        return float(
            np.mean(
                [
                    wasserstein_distance(
                        torch.pdist(unit[[place[p] for p in batch]]).numpy(), everything
                    )
                    for epoch in range(3)
                    for batch in (sampler.set_epoch(epoch), list(sampler))[1]
                ]
            )
        )

    assert typical_gap(20) < 0.7 * typical_gap(1)


def test_a_collapsed_bank_still_gives_batches(classes_of: Callable[..., Any]) -> None:
    sampler = make(classes_of([6] * 8), torch.ones(48, 4), 8, pool_size=24, moments=1.0)
    assert all(len(set(batch)) == 8 for batch in sampler)


def test_bad_values_are_named(classes_of: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="num_candidates must be at least 1, got 0"):
        DistanceMatchingSampler(*classes_of([4] * 8), 8, num_candidates=0)
    with pytest.raises(ValueError, match="moments must be 0 or more, got -1"):
        DistanceMatchingSampler(*classes_of([4] * 8), 8, moments=-1)

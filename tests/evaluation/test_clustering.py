import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from unseen.evaluation.clustering import Clusters, cluster
from unseen.metrics.nmi import Nmi


def blobs(n: int, classes: int, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) * classes // n
    centers = torch.randn(classes, 16, generator=generator)
    return centers[y] + noise * torch.randn(n, 16, generator=generator), y


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True)


def test_a_fixed_point_of_k_means() -> None:
    """Every item is with its nearest centre, every centre the mean of its items, by loops."""
    x, _ = blobs(200, 8, 0.4)
    for run in cluster(x, 8, iterations=200):
        points, centers = unit(x).double(), run.centers.double()
        inertia = 0.0
        for item, own in zip(points, run.assignments.tolist(), strict=True):
            dist = [(item - center).square().sum().item() for center in centers]
            assert dist[own] == pytest.approx(min(dist), abs=1e-6)
            inertia += dist[own]
        assert run.inertia == pytest.approx(inertia, rel=1e-5)
        for k in range(8):
            mean = points[run.assignments == k].mean(0)
            torch.testing.assert_close(centers[k], mean, atol=1e-5, rtol=0)


def test_as_good_as_scikit_learn() -> None:
    x, _ = blobs(600, 30, 0.8)
    ours = min(run.inertia for run in cluster(x, 30, starts=5))
    theirs = KMeans(30, n_init=5, init="random", random_state=0).fit(unit(x).numpy()).inertia_
    assert ours < 1.02 * theirs


def test_finds_separate_clusters() -> None:
    x, y = blobs(300, 10, 0.05)
    assert max(Nmi()(run.assignments, y) for run in cluster(x, 10, starts=5)) == pytest.approx(1.0)


def test_every_cluster_is_used() -> None:
    """As many clusters as distinct items: none may stay empty."""
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    run = cluster(x, 40, starts=1)[0]
    assert len(run.assignments.unique()) == 40
    assert run.inertia == pytest.approx(0.0, abs=1e-4)


def test_empty_clusters_restart_at_far_items() -> None:
    from unseen.evaluation.clustering import _means

    x = torch.tensor([[0.0], [1.0], [10.0]])
    centers = torch.tensor([[0.0], [99.0]])
    nearest = torch.zeros(3, dtype=torch.int64)
    moved = _means(x, centers, nearest, torch.tensor([0.0, 1.0, 100.0]))
    assert moved.flatten().tolist() == pytest.approx([11 / 3, 10.0])


def same(first: Clusters, second: Clusters) -> bool:
    return torch.equal(first.assignments, second.assignments)


def test_same_seed_same_clusters() -> None:
    x, _ = blobs(300, 10, 1.0)
    once, again, other = (cluster(x, 10, seed=seed) for seed in (0, 0, 1))
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
    assert not same(once[0], other[0])
    assert not same(once[0], once[1])


def test_collapsed_embeddings_are_one_cluster() -> None:
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(0)).repeat(501, 1)
    run = cluster(x, 20, starts=1)[0]
    assert len(run.assignments.unique()) == 1


def test_raw_embeddings() -> None:
    """Two clusters that differ in length only: seen raw, not on the sphere."""
    x = torch.cat([torch.ones(20, 2), 9 * torch.ones(20, 2)])
    x += 0.01 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) // 20
    assert Nmi()(cluster(x, 2, normalize=False)[0].assignments, y) == pytest.approx(1.0)
    assert Nmi()(cluster(x, 2)[0].assignments, y) < 0.5


def test_start_sensitivity_is_reported_not_hidden() -> None:
    """100 classes of 59: starts differ, by about half a point of NMI (specification)."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(100).repeat_interleave(59)
    x = torch.randn(100, 128, generator=generator)[y]
    x = x + 2.0 * torch.randn(len(y), 128, generator=generator)
    scores = torch.tensor([Nmi()(run.assignments, y) for run in cluster(x, 100, starts=4)])
    assert 0 < float(scores.std()) < 0.03


@pytest.mark.parametrize("num_clusters", [0, 5])
def test_bad_number(num_clusters: int) -> None:
    with pytest.raises(ValueError, match=r"num_clusters must lie in \[1, 4\]"):
        cluster(torch.ones(4, 2), num_clusters)


def test_bad_starts() -> None:
    with pytest.raises(ValueError, match="starts and iterations"):
        cluster(torch.ones(4, 2), 2, starts=0)


@pytest.mark.parametrize("integers", [True, False])
def test_many_clusters_are_those_of_few(integers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some size on centres are resolved with proof: the clusters stay."""
    x, _ = blobs(300, 10, 1.0)
    plain = cluster(x, 20)
    monkeypatch.setattr("unseen.neighbors.center_assignment.FEW", 2)
    monkeypatch.setattr("unseen.neighbors.center_assignment.SMALL", 0)
    monkeypatch.setattr("unseen.neighbors.certified._faster", lambda size, dtype: integers)
    resolved = cluster(x, 20)
    assert all(same(a, b) for a, b in zip(plain, resolved, strict=True))
    for a, b in zip(plain, resolved, strict=True):
        assert a.inertia == pytest.approx(b.inertia, rel=1e-5)

"""Clouds come back as groups; the number is found; outliers stay alone."""

import numpy as np
import pytest
from numpy.typing import NDArray

from unseen.search.groups import Groups, by_density, by_k_means


def clouds(count: int, each: int = 30, spread: float = 0.05) -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    centers = np.eye(16)[:count]
    points = np.repeat(centers, each, axis=0) + generator.normal(0, spread, (count * each, 16))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def as_sets(groups: Groups) -> set[frozenset[int]]:
    return {frozenset(members.tolist()) for members in groups.members}


@pytest.mark.parametrize("number", [None, 8])
@pytest.mark.parametrize("normalize", [True, False])
def test_k_means_finds_the_clouds(number: int | None, normalize: bool) -> None:
    result = by_k_means(clouds(8), number, normalize=normalize)
    assert as_sets(result) == {frozenset(range(30 * c, 30 * c + 30)) for c in range(8)}
    assert len(result.alone) == 0


def test_typical_images_come_first() -> None:
    points = clouds(3)
    for members in by_k_means(points, 3).members:
        center = points[members].mean(axis=0)
        center /= np.linalg.norm(center)
        distance = np.linalg.norm(points[members] - center, axis=1)
        assert distance[0] < np.median(distance) < distance[-1]


def test_density_leaves_strangers_alone() -> None:
    strangers = np.eye(16, dtype=np.float32)[10:14]
    points = np.concatenate([clouds(5, each=10), strangers])
    result = by_density(points, similarity=0.8)
    assert as_sets(result) == {frozenset(range(10 * c, 10 * c + 10)) for c in range(5)}
    assert result.alone.tolist() == [50, 51, 52, 53]


def test_every_image_is_somewhere() -> None:
    points = np.random.default_rng(1).normal(size=(101, 16)).astype(np.float32)
    for result in (by_k_means(points), by_density(points, 0.3)):
        every = np.concatenate([*result.members, result.alone])
        assert sorted(every.tolist()) == list(range(101))
        sizes = [len(members) for members in result.members]
        assert sizes == sorted(sizes, reverse=True)

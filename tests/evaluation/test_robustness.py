"""Recall with a part of the local features, against loops and at its ends."""

import math

import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Batch
from unseen.evaluation.robustness import robustness
from unseen.models.backbone import Backbone
from unseen.models.body_spec import InputSpec
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork

CPU = torch.device("cpu")


def as_they_are(pooling: str = "avg") -> EmbeddingNetwork:
    """A network whose map is the image and whose embedding is the pooled map."""
    return EmbeddingNetwork(Backbone(nn.Identity(), 3, InputSpec(6), pooling), Head(3, None))


def sample_images(noise: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(4)
    color = torch.randn(8, 3, generator=generator)[labels]
    spread = noise * torch.randn(32, 3, 6, 6, generator=generator)
    return color[:, :, None, None] + spread, labels


def measured(noise: float, **options: object) -> object:
    images, labels = sample_images(noise)
    halves = [Batch(images[i : i + 16], labels[i : i + 16], torch.arange(16)) for i in (0, 16)]
    return robustness(as_they_are(), halves, 32, CPU, **options)  # type: ignore[arg-type]


def test_plain_images_need_only_one_place_and_noisy_ones_lose() -> None:
    plain = measured(0.0)
    assert {r for r, _ in plain.recall.values()} == {1.0}
    assert plain.scatter_ratio == pytest.approx(0, abs=1e-6)
    noisy = measured(2.0)
    means = [mean for mean, _ in noisy.recall.values()]
    assert list(noisy.recall) == [1.0, 1 / 2, 1 / 3, 1 / 6, 1 / 12]
    assert means[0] > means[2] > means[4]
    assert noisy.drop(1 / 6) == pytest.approx(means[0] - means[3])
    assert noisy.recall[1.0][1] == 0
    assert noisy.recall[1 / 6][1] > 0
    assert noisy.scatter_ratio > 0.5


def test_all_places_are_the_network_itself_and_a_sixth_of_36_is_6() -> None:
    images, labels = sample_images(1.0)
    with torch.inference_mode():
        x = nn.functional.normalize(as_they_are()(images).embeddings)
    sim = (x @ x.T).fill_diagonal_(-math.inf)
    expected = float((labels[sim.argmax(1)] == labels).double().mean())
    assert measured(1.0, draws=1).recall[1.0][0] == pytest.approx(expected)
    seen: list[int] = []

    class Counting(nn.Module):
        def forward(self, maps: Tensor) -> Tensor:
            seen.append(maps.shape[2] * maps.shape[3])
            return maps.mean((2, 3))

    network = as_they_are()
    network.backbone.pooling = Counting()
    batch = Batch(images, labels, torch.arange(32))
    robustness(network, [batch], 32, CPU, fractions=(1 / 6, 1 / 35), draws=2)
    assert seen[2:] == [36, 6, 6, 2, 2]


def test_the_seed_decides_and_bad_values_are_refused() -> None:
    assert measured(2.0) == measured(2.0)
    assert measured(2.0) != measured(2.0, seed=1)
    with pytest.raises(ValueError, match="fractions must lie in"):
        measured(1.0, fractions=(0.0,))

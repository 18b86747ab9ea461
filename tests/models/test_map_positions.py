"""The parts of a descriptor by places: against loops over places and channels in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.models.backbone import Backbone
from unseen.models.body_spec import InputSpec
from unseen.models.custom_network import CustomNetwork
from unseen.models.descriptor import Described, Shortened
from unseen.models.head import Head
from unseen.models.map_positions import place_descriptors, places_of
from unseen.models.network import EmbeddingNetwork

SIDE = 16


def network(pooling: str = "avg", hidden: tuple[int, ...] = (), **more: Any) -> EmbeddingNetwork:
    body = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4, padding=1), nn.ReLU())
    backbone = Backbone(body, 6, InputSpec(SIDE), pooling, **more)
    return EmbeddingNetwork(backbone, Head(6, 5, hidden)).double().eval()


def sample_image(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, SIDE, SIDE, dtype=torch.float64, generator=generator)


def fraction(values: list[float], place: int, pooling: str, p: float) -> float:
    """What a place gives to the pooled value of a channel."""
    average, largest = values[place] / len(values), 0.0
    if values[place] == max(values):
        largest = values[place] / values.count(max(values))
    if pooling == "gem":
        total = sum(value**p for value in values)
        pooled = (total / len(values)) ** (1 / p)
        return pooled * values[place] ** p / total if total else 0.0
    return {"avg": average, "max": largest, "avg+max": average + largest}[pooling]


def slow_parts(net: EmbeddingNetwork, image: Tensor, pooling: str) -> list[list[float]]:
    """[P][D], by loops."""
    maps = net.backbone.body(image[None])[0].flatten(1).tolist()  # [C][P]
    p = getattr(net.backbone.pooling, "p", torch.zeros(())).item()
    layer: Any = net.head.get_submodule("fc1")
    weight, bias, num_places = layer.weight.tolist(), layer.bias.tolist(), len(maps[0])
    return [
        [
            sum(w * fraction(maps[c], place, pooling, p) for c, w in enumerate(weight[d]))
            + bias[d] / num_places
            for d in range(len(weight))
        ]
        for place in range(num_places)
    ]


@pytest.mark.parametrize("pooling", ["avg", "max", "avg+max", "gem"])
def test_equals_loops_over_places_and_channels(pooling: str) -> None:
    net = network(pooling)
    result = places_of(net, sample_image())
    assert result.is_exact
    assert result.grid == (4, 4)
    torch.testing.assert_close(
        result.parts,
        torch.tensor(slow_parts(net, sample_image(), pooling)).double(),
        atol=1e-5,
        rtol=0,
    )
    torch.testing.assert_close(result.parts.sum(0), net(sample_image()[None]).embeddings[0])


def test_a_maximum_belongs_to_its_place() -> None:
    net = network("max")
    layer: Any = net.head.get_submodule("fc1")
    nn.init.zeros_(layer.bias)
    maps = net.backbone.body(sample_image()[None])[0].flatten(1)  # [C, P]
    result = places_of(net, sample_image())
    holders = set(maps.argmax(dim=1).tolist())
    silent = [place for place in range(16) if place not in holders]
    assert silent
    assert result.parts[silent].abs().max() < 1e-12


@pytest.mark.parametrize("mirror", [True, "evaluation"])
@pytest.mark.parametrize("pooling", ["avg", "max"])
def test_a_mirrored_view_counts_where_it_lies_in_the_image(pooling: str, mirror: Any) -> None:
    net, plain = network(pooling, mirror=mirror), network(pooling)
    plain.load_state_dict(net.state_dict())
    image = sample_image()
    result, one = places_of(net, image), places_of(plain, image)
    other = places_of(plain, image.flip(-1)).parts.unflatten(0, (4, 4)).flip(1).flatten(0, 1)
    assert result.is_exact
    torch.testing.assert_close(result.parts, (one.parts + other) / 2)
    torch.testing.assert_close(result.parts.sum(0), net(image[None]).embeddings[0])


@pytest.mark.parametrize("layer", ["pooled", "0", "1"])
def test_layers_as_descriptors_are_exact(layer: str) -> None:
    net = Described(network("avg+max").float(), layer).double()
    result = places_of(net, sample_image())
    assert result.is_exact
    sums = result.parts.sum(0)
    torch.testing.assert_close(sums / sums.norm(), net(sample_image()[None]).embeddings[0])


def test_a_shortened_descriptor() -> None:
    whole = network()
    result = places_of(Shortened(whole, 3), sample_image())
    torch.testing.assert_close(result.parts, places_of(whole, sample_image()).parts[:, :3])


def test_large_maps_are_looked_at_in_cells() -> None:
    body = nn.Conv2d(3, 4, 1)
    backbone = Backbone(body, 4, InputSpec(SIDE))
    net = EmbeddingNetwork(backbone, Head(4, 2)).double().eval()
    result = places_of(net, sample_image())
    assert result.grid == (14, 14)
    torch.testing.assert_close(result.parts.sum(0), net(sample_image()[None]).embeddings[0])


def test_hidden_layers_are_explained_by_gradient() -> None:
    """Against a derivative by differences."""
    net, image = network(hidden=(8,)), sample_image()
    result = places_of(net, image)
    assert not result.is_exact
    assert not result.on_pixels
    maps, step = net.backbone.body(image[None]), 1e-6
    for place in (0, 5, 15):
        moved = maps.clone()
        moved[..., place // 4, place % 4] *= 1 + step
        slope = (net.finish(moved).embeddings - net.finish(maps).embeddings)[0] / step
        torch.testing.assert_close(result.parts[place], slope, atol=1e-5, rtol=1e-4)


class Squared(nn.Module):
    """A network of one's own that shows no maps."""

    input_spec = InputSpec(SIDE)

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3 * SIDE * SIDE, 4)

    def forward(self, images: Tensor) -> Output:
        result = self.inner(images.flatten(1))
        return Output(result, result)


def test_without_places_the_pixels_are_compared() -> None:
    net = CustomNetwork(Squared()).double().eval()
    result = places_of(net, sample_image())
    assert result.on_pixels
    assert result.grid == (7, 7)
    bias = net.backbone.body.get_submodule("inner").bias
    torch.testing.assert_close(result.parts.sum(0) + bias, net(sample_image()[None]).embeddings[0])


@pytest.mark.parametrize("mirror", [False, True])
def test_descriptors_of_places_are_those_of_the_image_as_it_is(mirror: bool) -> None:
    net, images = network(mirror=mirror), torch.stack([sample_image(seed) for seed in range(3)])
    made = place_descriptors(net, images)
    assert made is not None
    for image, places in zip(images, made, strict=True):
        maps = net.backbone.body(image[None])[0]
        for place, descriptor in enumerate(places):
            column = maps[:, place // 4, place % 4].float()
            torch.testing.assert_close(descriptor, column / column.norm().clamp(min=1e-12))

"""A module of the user's own is read, cut and trained like a built-in network."""

import pytest
import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.networks.own_network import OwnNetwork
from unseen.networks.recipe import InputSpec
from unseen.networks.split import cut_network


class Tiny(nn.Module):
    input_spec = InputSpec(12, mean=(0.1, 0.2, 0.3))

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Conv2d(3, 4, 3)
        self.late = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.late(self.early(images).mean(dim=(2, 3)))


class WithMaps(Tiny):
    def forward(self, images: Tensor) -> Output:
        maps = self.early(images)
        pooled = maps.mean(dim=(2, 3))
        return Output(self.late(pooled), pooled, maps)


def test_a_module_that_gives_vectors() -> None:
    network = OwnNetwork(Tiny())
    assert (network.embedding_size, network.backbone.input_spec.size) == (5, 12)
    assert network.backbone.input_spec.mean == (0.1, 0.2, 0.3)
    images = torch.randn(3, 3, 12, 12)
    assert torch.equal(network(images).embeddings, network.backbone.body(images))
    assert set(network.tapped(images, ["early", "pooled", "embedding"])) == {
        "early",
        "pooled",
        "embedding",
    }


def test_a_module_that_gives_an_output_keeps_its_maps() -> None:
    network = OwnNetwork(WithMaps(), picture_size=16)
    output = network(torch.randn(2, 3, 16, 16))
    assert output.maps is not None
    assert network.backbone.num_features == output.maps.shape[1] == 4
    assert output.pooled.shape == (2, 4)


def test_a_module_on_features() -> None:
    network = OwnNetwork(nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 2)), num_inputs=7)
    assert (network.embedding_size, network.backbone.num_features) == (2, 7)


def test_it_can_be_cut() -> None:
    network = OwnNetwork(Tiny()).eval()
    images = torch.randn(3, 3, 12, 12)
    whole = network(images).embeddings
    prefix, rest = cut_network(network, "early")
    assert torch.allclose(rest(prefix(images)).embeddings, whole, atol=1e-6)
    assert [name for name, p in network.named_parameters() if p.requires_grad] == [
        "backbone.body.late.weight",
        "backbone.body.late.bias",
    ]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (nn.Conv2d(3, 4, 3), r"must give embeddings \[N, D\]"),
        (nn.Flatten(), "nothing to train"),
        (nn.Linear(5, 2), r"does not take \[2, 3, 224, 224\]"),
    ],
)
def test_what_cannot_be_a_network_is_refused(module: nn.Module, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        OwnNetwork(module)

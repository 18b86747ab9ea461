"""A module of the user's own is read, cut and trained like a built-in network."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.models.body_spec import IMAGENET_MEAN, IMAGENET_STD, InputSpec, input_spec_of
from unseen.models.custom_network import CustomNetwork
from unseen.models.freezing import split_network


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
    network = CustomNetwork(Tiny())
    assert (network.embedding_size, network.backbone.input_spec.size) == (5, 12)
    assert network.backbone.input_spec.mean == (0.1, 0.2, 0.3)
    images = torch.randn(3, 3, 12, 12)
    assert torch.equal(network(images).embeddings, network.backbone.body(images))
    assert set(network.layer_outputs(images, ["early", "pooled", "embedding"])) == {
        "early",
        "pooled",
        "embedding",
    }


def test_a_module_that_gives_an_output_keeps_its_maps() -> None:
    network = CustomNetwork(WithMaps(), image_size=16)
    output = network(torch.randn(2, 3, 16, 16))
    assert output.maps is not None
    assert network.backbone.num_features == output.maps.shape[1] == 4
    assert output.pooled.shape == (2, 4)


def test_a_module_on_features() -> None:
    network = CustomNetwork(
        nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 2)), num_inputs=7
    )
    assert (network.embedding_size, network.backbone.num_features) == (2, 7)


def test_it_can_be_cut() -> None:
    network = CustomNetwork(Tiny()).eval()
    images = torch.randn(3, 3, 12, 12)
    whole = network(images).embeddings
    frozen, rest = split_network(network, "early")
    assert torch.allclose(rest(frozen(images)).embeddings, whole, atol=1e-6)
    assert [name for name, p in network.named_parameters() if p.requires_grad] == [
        "backbone.body.late.weight",
        "backbone.body.late.bias",
    ]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(3, 4, 3), r"must give embeddings \[N, D\]"),
        (nn.Flatten(), "nothing to train"),
        (nn.Linear(5, 2), r"does not take \[2, 3, 224, 224\]"),
    ],
)
def test_what_cannot_be_a_network_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomNetwork(module)


class Published(nn.Module):
    """As timm's models carry what their weights expect."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {
        "input_size": (3, 24, 24),
        "mean": (0.4, 0.5, 0.6),
        "std": (0.1, 0.2, 0.3),
    }

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images).mean(dim=(2, 3))


def test_the_normalisation_of_published_weights_is_taken_from_the_object() -> None:
    for module in (Published(), nn.Sequential(Published(), nn.Linear(4, 2))):
        spec = CustomNetwork(module).backbone.input_spec
        assert (spec.size, spec.mean, spec.std) == (24, (0.4, 0.5, 0.6), (0.1, 0.2, 0.3))
        assert spec.source == "the pretrained_cfg of Published"
    assert CustomNetwork(Published(), 16).backbone.input_spec.size == 16


def test_models_of_timm_and_torchvision() -> None:
    import unseen.core.torchvision_operators  # noqa: F401 - before the two

    timm, models = pytest.importorskip("timm"), pytest.importorskip("torchvision.models")
    model = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    assert input_spec_of(model, None) == InputSpec(224, interpolation="bicubic")
    assert input_spec_of(model, None).source == "the pretrained_cfg of EfficientNet"
    model = timm.create_model("resnet10t", num_classes=0)
    assert input_spec_of(model, None).mean == IMAGENET_MEAN
    spec = input_spec_of(nn.Sequential(models.squeezenet1_1(), nn.Linear(1000, 2)), None)
    assert (spec.mean, spec.std, spec.size) == (IMAGENET_MEAN, IMAGENET_STD, 224)
    assert spec.source == "the ImageNet values of torchvision's SqueezeNet"


def test_a_network_that_says_nothing() -> None:
    spec = input_spec_of(nn.Conv2d(3, 4, 3), 32)
    assert (spec.size, spec.mean) == (32, (0.5, 0.5, 0.5))
    assert spec.source == "no values known of Conv2d: input_spec = InputSpec(...) sets them"

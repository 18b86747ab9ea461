"""Backbones by name: sizes and layer names of the checkpoints they must load, and their inputs."""

from pathlib import Path

import pytest
import torch

from unseen.core import custom_components
from unseen.models import timm_bodies
from unseen.models.backbone import backbone_info, create_backbone
from unseen.models.body_spec import IMAGENET_MEAN, IMAGENET_STD

FOURS = ("4a", "4b", "4c", "4d", "4e")
PARAMETERS = {
    "googlenet": 5_599_904,
    "resnet50": 23_508_032,
    "resnet50_caffe": 23_508_032,
    "vgg16_bn": 14_723_136,
    "bn_inception": 10_270_240,
    "efficientnet_lite0": 3_371_008,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_last_map(name):
    backbone = create_backbone(name).eval()
    assert sum(p.numel() for p in backbone.body.parameters()) == PARAMETERS[name]
    with torch.inference_mode():
        pooled, maps = backbone(torch.zeros(1, 3, 224, 224))
    assert maps.shape == (1, backbone.num_features, 7, 7)
    torch.testing.assert_close(pooled, maps.mean(dim=(2, 3)))


def test_resnet50_names():
    names = [name for name, _ in create_backbone("resnet50").body.named_children()]
    assert names == ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"]


def test_googlenet_names():
    body = create_backbone("googlenet").body
    blocks = [name for name, _ in body.named_children() if name.startswith("inception")]
    assert blocks == [f"inception{block}" for block in ("3a", "3b", *FOURS, "5a", "5b")]
    state = body.state_dict()
    for branch in ("branch1", "branch2.0", "branch2.1", "branch3.0", "branch3.1", "branch4.1"):
        assert f"inception4c.{branch}.conv.weight" in state
        assert f"inception4c.{branch}.bn.running_var" in state
    assert state["inception4c.branch3.1.conv.weight"].shape[2:] == (3, 3)
    assert body.inception4c.branch1.bn.eps == 0.001
    assert not [key for key in state if key.startswith(("aux", "fc", "transform_input"))]


def test_vgg_names():
    features = create_backbone("vgg16_bn").body.features
    kinds = {
        kind: [i for i, layer in enumerate(features) if type(layer).__name__ == kind]
        for kind in ("Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d")
    }
    convolutions = [0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40]
    assert kinds["Conv2d"] == convolutions
    assert kinds["BatchNorm2d"] == [i + 1 for i in convolutions]
    assert kinds["ReLU"] == [i + 2 for i in convolutions]
    assert kinds["MaxPool2d"] == [6, 13, 23, 33, 43]


def test_googlenet_maps_its_input_back():
    image = torch.rand(2, 3, 5, 5)
    mean, std = (torch.tensor(v)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
    first = create_backbone("googlenet").body.transform_input
    torch.testing.assert_close(first((image - mean) / std), (image - 0.5) / 0.5)


def test_input_specs():
    lite = create_backbone("efficientnet_lite0").input_spec
    assert lite.size == 224
    pixels = torch.tensor([0.0, 127.0, 255.0])
    seen = (pixels / 255 - lite.mean[0]) / lite.std[0]
    torch.testing.assert_close(seen, (pixels - 127) / 128)
    assert create_backbone("resnet50").input_spec.mean == IMAGENET_MEAN
    assert create_backbone("resnet50", 96).input_spec.size == 96
    assert [backbone_info(f"efficientnet_lite{i}").input_spec.size for i in range(3)] == [
        224,
        240,
        260,
    ]


@pytest.mark.parametrize(
    ("name", "features", "channels"),
    [
        ("timm:resnet18", 512, 512),
        ("timm:vit_tiny_patch16_224", 192, 192),
        ("timm:mobilenetv3_small_050", 1024, 288),
        ("timm:swin_tiny_patch4_window7_224", 768, 768),
    ],
)
def test_timm(name, features, channels):
    size = 56 if "swin" in name else 32
    backbone = create_backbone(name, size).eval()
    with torch.inference_mode():
        pooled, maps = backbone(torch.randn(2, 3, size, size))
    assert pooled.shape == (2, features)
    assert (backbone.num_features, backbone.num_channels) == (features, channels)
    assert maps.shape == (2, channels, *[2 if name[5:8] in ("vit", "swi") else 1] * 2)


def test_weights_that_cannot_be_had_say_so_without_waiting(tmp_path, monkeypatch):
    """No connection, nothing in the cache: one line, and the hub's own retries are not begun."""

    def refused(*_: object) -> None:
        raise ConnectionRefusedError("no network")

    monkeypatch.setattr(timm_bodies.socket, "create_connection", refused)
    monkeypatch.setattr(timm_bodies, "getproxies", dict)
    monkeypatch.setattr(timm_bodies.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"cannot be reached, and its cache has none\. weights=FILE"
    ):
        create_backbone("timm:resnet18", 32, weights="imagenet")
    assert not timm_bodies.constants.HF_HUB_OFFLINE


def test_pooling_of_tokens_leaves_the_class_token_out():
    images = torch.randn(2, 3, 32, 32)
    backbone = create_backbone("timm:vit_tiny_patch16_224", 32, pooling="max").eval()
    with torch.inference_mode():
        tokens = backbone.features(images)
        pooled, maps = backbone(images)
    torch.testing.assert_close(pooled, tokens[:, 1:].amax(dim=1))
    assert torch.equal(maps, tokens[:, 1:].mT.reshape(2, 192, 2, 2))


def test_pooling_is_a_choice():
    images = torch.randn(2, 3, 40, 40)
    backbone = create_backbone("small_conv", pooling="avg+max")
    pooled, maps = backbone(images)
    torch.testing.assert_close(pooled, maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5O", "resnet50"),
        ("bninception", "bn_inception"),
        ("timm:resnet5O", "resnet50"),
        ("efficientnet_lit0", "efficientnet_lite0"),
    ],
)
def test_unknown_names_name_the_nearest(name, message):
    with pytest.raises(ValueError, match=rf"(?s)did you mean.*{message}"):
        create_backbone(name)


def test_bad_values():
    with pytest.raises(ValueError, match=r"pooling must be one of own, avg.*got 'mean'"):
        create_backbone("small_conv", pooling="mean")
    with pytest.raises(ValueError, match=r"frozen_bn must be one of off, stats, full, got 'on'"):
        create_backbone("small_conv", frozen_bn="on")
    with pytest.raises(ValueError, match="small_conv has no ImageNet weights"):
        create_backbone("small_conv", weights="imagenet")
    with pytest.raises(ValueError, match=r"weights=FILE"):
        create_backbone("bn_inception", weights="imagenet")


BODY = """
from torch import nn

class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=2)

    def forward(self, images):
        return self.conv(images)

def vectors(pretrained: bool = False):
    return nn.Sequential(Body(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


def test_a_body_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_body.py").write_text(BODY)
    monkeypatch.chdir(tmp_path)
    custom_components.trust(["./my_body.py:Body", "./my_body.py:vectors"])
    backbone = create_backbone("./my_body.py:Body", image_size=20, pooling="max")
    pooled, maps = backbone(torch.randn(2, 3, 20, 20))
    assert maps is not None
    assert (backbone.num_features, backbone.input_spec.size) == (6, 20)
    assert torch.equal(pooled, maps.amax(dim=(2, 3)))
    pooled, maps = create_backbone("./my_body.py:vectors")(torch.randn(2, 3, 16, 16))
    assert (pooled.shape, maps) == ((2, 6), None)
    with pytest.raises(ValueError, match="takes no `pretrained`"):
        create_backbone("./my_body.py:Body", weights="imagenet")


@pytest.mark.parametrize("name", ["small_conv", "resnet50", "timm:resnet18", "features:7"])
def test_metadata_are_those_of_the_backbone_itself(name: str) -> None:
    metadata, made = backbone_info(name), create_backbone(name)
    assert (metadata.num_features, metadata.input_spec) == (made.num_features, made.input_spec)


def test_mirror_images_may_be_for_evaluation_alone() -> None:
    backbone = create_backbone("small_conv", 16, mirror="evaluation")
    single, both = (create_backbone("small_conv", 16, mirror=m) for m in (False, True))
    for other in (single, both):
        other.load_state_dict(backbone.state_dict())
    images = torch.rand(2, 3, 16, 16)
    hold = [b.eval() for b in (backbone, both)]
    assert torch.equal(hold[0](images)[0], hold[1](images)[0])
    assert torch.equal(backbone.train()(images)[0], single.train()(images)[0])

"""NetA to NetF: what they are made of, and the paper's layers on VGG-16-BN."""

import pytest
import torch
from torch import nn

from unseen.models.backbone import create_backbone
from unseen.models.presets import PRESETS, create_preset, reset_last_convolution

HEADS = {"net_a": 1, "net_b": 1, "net_c": 1, "net_d": 0, "net_e": 2, "net_f": 3}


def paper_layers(network):
    """The paper's names of layers on VGG-16-BN (pool1.1 ... pool5.3, fc6 ...) and ours."""
    block, step = 1, 0
    names = {}
    for name, layer in network.named_layers().items():
        if isinstance(layer, nn.ReLU) and not name.startswith("head."):
            step += 1
            names[f"pool{block}.{step}"] = name
        elif isinstance(layer, nn.MaxPool2d):
            block, step = block + 1, 0
        elif isinstance(layer, nn.Linear):
            names[f"fc{5 + int(name.removeprefix('head.fc'))}"] = name
    return names


@pytest.fixture(scope="module")
def vgg_file(tmp_path_factory):
    """Stands for pretrained weights: values that no fresh network has."""
    body = create_backbone("vgg16_bn").body
    path = tmp_path_factory.mktemp("weights") / "vgg.pth"
    torch.save(
        {key: torch.full_like(value, 0.125) for key, value in body.state_dict().items()}, path
    )
    return str(path)


@pytest.mark.parametrize("name", PRESETS)
def test_structure(name, vgg_file):
    network = create_preset(name, image_size=32, weights=vgg_file)
    linear = [layer for layer in network.head.modules() if isinstance(layer, nn.Linear)]
    assert [(fc.in_features, fc.out_features) for fc in linear] == [(512, 512)] * HEADS[name]
    assert network.head.dropout.p == 0.01
    assert network.embedding_size == 512
    fresh = {
        layer.rpartition(".")[0]
        for layer, value in network.backbone.body.state_dict().items()
        if not (value == torch.full_like(value, 0.125)).all()
    }
    expected = {"net_b": {"features.40", "features.41"}, "net_c": fresh}.get(name, set())
    assert fresh == expected
    assert (len(fresh) == 26) == (name == "net_c")
    if name == "net_d":
        assert sum(p.numel() for p in network.parameters()) == 14_723_136


def test_pooling_is_the_maximum():
    network = create_preset("net_d", "small_conv", 32, None).eval()
    images = torch.randn(2, 3, 32, 32)
    output = network(images)
    torch.testing.assert_close(output.pooled, output.maps.amax((2, 3)))
    assert torch.equal(output.embeddings, output.pooled)


def test_taps_of_the_paper():
    network = create_preset("net_f", image_size=32, weights=None).eval()
    layers = paper_layers(network)
    convolutions = [
        f"pool{b}.{i}" for b, n in enumerate([2, 2, 3, 3, 3], 1) for i in range(1, n + 1)
    ]
    assert list(layers) == [*convolutions, "fc6", "fc7", "fc8"]
    assert layers["pool5.3"] == "features.42"
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        result = network.layer_outputs(images, list(layers.values()))
        expected = nn.functional.normalize(network.backbone.body.features[:43](images).amax((2, 3)))
    torch.testing.assert_close(result["features.42"], expected)
    sizes = [result[layers[name]].shape[1] for name in convolutions]
    assert sum(sizes) == 4224
    assert (result[layers["fc6"]] < 0).any()


def test_net_b_on_any_backbone():
    body = create_backbone("timm:resnet18", 32).body
    assert reset_last_convolution(body) == ["layer4.1.conv2", "layer4.1.bn2"]
    with pytest.raises(ValueError, match="frozen_bn must be off"):
        create_preset("net_b", "timm:resnet18", 32, None, "full")


def test_unknown():
    with pytest.raises(ValueError, match=r"preset must be one of net_a, .*got 'net_g'"):
        create_preset("net_g")

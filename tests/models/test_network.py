"""Network and taps: any layer as a unit descriptor, read at the right moment."""

import pytest
import torch
from torch import nn

from unseen.models.attention_ensemble import AttentionEnsemble
from unseen.models.backbone import Backbone, create_backbone
from unseen.models.body_spec import InputSpec
from unseen.models.descriptor import layers_of
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork, portions


@pytest.mark.parametrize(
    ("name", "layers", "sizes"),
    [
        ("small_conv", ["stem", "stage2", "stage3.refine"], [32, 128, 256]),
        ("timm:resnet18", ["conv1", "layer2.0.bn1", "layer3"], [64, 128, 256]),
        ("timm:vit_tiny_patch16_224", ["patch_embed", "blocks.3", "blocks.11.mlp"], [192] * 3),
        ("timm:efficientnet_b0", ["conv_stem", "blocks.3", "blocks.5.0.se"], [32, 80, 672]),
    ],
)
def test_any_layer_of_any_backbone(make_network, images, name, layers, sizes):
    network = make_network(name).eval()
    with torch.inference_mode():
        layer_outputs = network.layer_outputs(images, [*layers, "pooled", "embedding"])
        output = network(images)
    assert list(layer_outputs) == [*layers, "pooled", "embedding"]
    assert [layer_outputs[layer].shape[1] for layer in layers] == sizes
    for descriptors in layer_outputs.values():
        torch.testing.assert_close(descriptors.norm(dim=1), torch.ones(len(images)))
    normalize = nn.functional.normalize
    torch.testing.assert_close(layer_outputs["pooled"], normalize(output.pooled))
    torch.testing.assert_close(layer_outputs["embedding"], normalize(output.embeddings))


def test_map_rule(make_network, images):
    network = make_network().eval()
    body = network.backbone.body
    with torch.inference_mode():
        stem = body.stem(images)
        for pooling, expected in (("max", stem.amax((2, 3))), ("avg", stem.mean((2, 3)))):
            result = network.layer_outputs(images, ["stem"], pooling)["stem"]
            torch.testing.assert_close(result, nn.functional.normalize(expected))


def test_a_image_and_its_mirror_image(make_network, images):
    """The mean of both pooled descriptors; earlier layers show both side by side."""
    plain = make_network().eval()
    body = plain.backbone
    mirrored = Backbone(body.body, body.num_features, body.input_spec, mirror=True)
    both = EmbeddingNetwork(mirrored, plain.head).eval()
    with torch.inference_mode():
        left, right = plain(images), plain(images.flip(-1))
        result, swapped = both(images), both(images.flip(-1))
        stages = [plain.layer_outputs(x, ["stage1"])["stage1"] for x in (images, images.flip(-1))]
        stage = both.layer_outputs(images, ["stage1"])["stage1"]
        expected = plain.head((left.pooled + right.pooled) / 2)
    torch.testing.assert_close(result.embeddings, expected)
    torch.testing.assert_close(result.pooled, (left.pooled + right.pooled) / 2)
    torch.testing.assert_close(result.maps, left.maps)
    torch.testing.assert_close(swapped.embeddings, result.embeddings)
    assert not torch.allclose(left.embeddings, right.embeddings, atol=1e-4)
    assert stage.shape[1] == 2 * stages[0].shape[1]
    parts = nn.functional.normalize(stage.unflatten(1, (2, -1)), dim=2)
    torch.testing.assert_close(parts, torch.stack(stages, dim=1))


def test_layers_that_overwrite_their_input_do_not_spoil_a_tap(images):
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    network = EmbeddingNetwork(Backbone(body, 4, InputSpec(32)), Head(4, 2)).eval()
    with torch.inference_mode():
        layer_outputs = network.layer_outputs(-images.abs(), ["1", "2"], "avg")
        expected = nn.functional.normalize(body[1](body[0](-images.abs())).mean((2, 3)))
    torch.testing.assert_close(layer_outputs["1"], expected)
    assert (layer_outputs["1"] < 0).any()
    assert (layer_outputs["2"] >= 0).all()


def test_hidden_head_layers_are_read_before_their_relu(images):
    body = nn.Conv2d(3, 4, 3)
    network = EmbeddingNetwork(Backbone(body, 4, InputSpec(32)), Head(4, 2, [16])).eval()
    assert (network.layer_outputs(images, ["head.fc1"])["head.fc1"] < 0).any()
    assert (network.layer_outputs(images, ["head.relu1"])["head.relu1"] >= 0).all()


def test_layers_are_what_can_be_tapped(make_network, images):
    network = make_network().eval()
    names = network.layers()
    assert names[-3:] == ["pooled", "head.fc1", "embedding"]
    with torch.inference_mode():
        assert list(network.layer_outputs(images, names)) == names
    result = layers_of(network, images)
    assert result["stage1"] == ((64, 8, 8), 64)
    assert result["embedding"] == ((8,), 8)
    assert list(result)[-3:] == ["pooled", "head.fc1", "embedding"]
    assert list(result).index("stem") < list(result).index("stage1.reduce")


def test_layers_of_an_ensemble_have_the_learners_side_by_side(images):
    backbone = create_backbone("timm:resnet18", 32)
    ensemble = AttentionEnsemble(backbone, 32, 4, "layer3.0", "layer3.1")
    result = layers_of(ensemble, images)
    assert result["layer3.0"] == ((256, 2, 2), 256)
    assert result["layer4.1"] == ((512, 1, 1), 4 * 512)
    assert result["pooled"].size == 4 * 512


def test_errors(make_network, images):
    network = make_network("timm:resnet18")
    with pytest.raises(ValueError, match=r"no layer named 'layer33': did you mean layer3"):
        network.layer_outputs(images, ["layer33"])
    with pytest.raises(ValueError, match="do not run in a forward pass: fc"):
        network.layer_outputs(images, ["fc"])
    with pytest.raises(ValueError, match="the head gives 8 values, not 9"):
        EmbeddingNetwork(network.backbone, network.head, 9)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((45, 3, 224, 224), [20, 20, 5]),
        ((256, 1, 64, 64), [256]),
        ((2, 1, 1100, 1100), [1, 1]),
        ((300, 16), [300]),
    ],
)
def test_parts_of_a_batch(shape, sizes):
    images = torch.zeros(1).expand(shape)
    assert [len(part) for part in portions(images)] == sizes


def test_in_order():
    images = torch.arange(6.0)[:, None, None, None].expand(6, 1, 724, 724)
    assert torch.equal(torch.cat(portions(images)), images)

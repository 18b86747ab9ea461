"""A network at one of its layers, and the layers worth comparing."""

import pytest
import torch
from torch import nn

from unseen.models.attention_ensemble import AttentionEnsemble
from unseen.models.backbone import Backbone, create_backbone
from unseen.models.body_spec import InputSpec
from unseen.models.descriptor import Described, described, usual_layers
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork


def test_the_embedding_is_the_network_itself(make_network):
    network = make_network()
    assert described(network, "embedding") is network


@pytest.mark.parametrize(("layer", "size"), [("stage2", 128), ("pooled", 256)])
def test_embeddings_are_the_layers_descriptors(make_network, images, layer, size):
    network = make_network().eval()
    at_layer = described(network, layer)
    with torch.inference_mode():
        expected = network.layer_outputs(images, [layer])[layer]
        output = at_layer(images)
        assert torch.equal(output.embeddings, expected)
        assert torch.equal(output.pooled, network(images).pooled)  # raw, as the head is given it
    assert at_layer.embedding_size == size
    assert not at_layer.training
    assert next(at_layer.parameters()) is next(network.parameters())


def test_features_have_a_pooled_layer_too():
    backbone = create_backbone("features:6")
    network = EmbeddingNetwork(backbone, Head(6, 2))
    assert described(network, "pooled").embedding_size == 6


def test_training_mode_is_left_alone(make_network, images):
    network = make_network().train()
    assert described(network, "stage1").training
    usual_layers(network, images)
    assert network.training


def test_a_layer_that_is_not_there_or_does_not_run_is_refused_at_once(make_network):
    with pytest.raises(ValueError, match="no layer named 'stage9': did you mean stage"):
        Described(make_network(), "stage9")
    with pytest.raises(ValueError, match="do not run in a forward pass: fc"):
        Described(make_network("timm:resnet18"), "fc")


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("small_conv", "stage1", 5),
        ("timm:resnet18", "act1", 11),
        ("timm:vit_tiny_patch16_224", "patch_embed", 15),
    ],
)
def test_usual_taps_are_blocks_in_order_and_all_can_be_read(make_network, name, first, count):
    size = 224 if "vit" in name else 32
    network, images = make_network(name, size), torch.zeros(1, 3, size, size)
    taps = usual_layers(network, images)
    assert taps[0] == first
    assert taps[-2:] == ["pooled", "embedding"]
    assert len(taps) == len(set(taps)) == count
    with torch.inference_mode():
        assert list(network.eval().layer_outputs(images, taps)) == taps


def test_usual_taps_of_a_plain_stack_are_its_activations_and_hidden_layers(images):
    """As Vo & Hays read VGG: every ReLU, then the linear layers before theirs."""
    steps = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    body = nn.Sequential(nn.Sequential(*steps), nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True))
    network = EmbeddingNetwork(Backbone(body, 4, InputSpec(32)), Head(4, 2, [8, 6]))
    expected = ["0.2", "2", "pooled", "head.fc1", "head.fc2", "embedding"]
    assert usual_layers(network, images) == expected


def test_an_attention_ensemble_has_taps_too():
    network = AttentionEnsemble(create_backbone("googlenet", 64))
    images = torch.zeros(1, 3, 64, 64)
    taps = usual_layers(network, images)
    assert taps[-3:] == ["inception5b", "pooled", "embedding"]
    assert described(network, "pooled").embedding_size == 8 * 1024

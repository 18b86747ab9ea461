"""A cut network gives what the whole one gives, in value and in gradient, and stays frozen."""

import pytest
import torch
from torch import nn

from unseen.models.backbone import Backbone, create_backbone
from unseen.models.body_spec import InputSpec
from unseen.models.freezing import split_network
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork

CUTS = [
    ("small_conv", "stage2"),
    ("small_conv", "stage2.reduce_norm"),
    ("small_conv", "pooled"),
    ("timm:test_resnet", "layer3"),
    ("timm:test_resnet", "layer3.0"),
    ("timm:vit_tiny_patch16_224", "blocks.5"),
    ("timm:vit_tiny_patch16_224", "patch_embed"),
    ("timm:vit_tiny_patch16_224", "pooled"),
    ("timm:test_efficientnet", "blocks.3.0"),
    ("bn_inception", "inception_4e_output"),
    ("googlenet", "maxpool4"),
]


@pytest.mark.parametrize(("name", "layer"), CUTS)
def test_values_and_gradients_equal_the_whole_network(make_network, images, name, layer):
    # float64: memory layouts sum in another order, which float32 would show
    network = make_network(name, frozen_bn="stats").double()
    whole = make_network(name, frozen_bn="stats").double().train()
    images = images.double()
    cut = split_network(network, layer)
    cut.rest.train()
    activations = cut.frozen(images)
    assert not activations.requires_grad
    output, expected = cut.rest(activations), whole(images)
    torch.testing.assert_close(output.embeddings, expected.embeddings)
    torch.testing.assert_close(output.pooled, expected.pooled)
    output.embeddings.square().sum().backward()
    expected.embeddings.square().sum().backward()
    trained = 0
    for (key, p), q in zip(network.named_parameters(), whole.parameters(), strict=True):
        assert (p.grad is not None) <= p.requires_grad, key
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-7, atol=1e-10, msg=key)
            trained += 1
    assert 0 < trained < len(list(network.parameters()))


def test_the_prefix_stays_frozen(make_network, images):
    network = make_network("timm:test_resnet")
    cut = split_network(network, "layer3")
    print_before = cut.frozen.fingerprint()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=0.1)
    network.warm_up(only_new_layers=True)
    network.warm_up(only_new_layers=False)
    network.train()
    network(images).embeddings.sum().backward()
    optimizer.step()
    assert cut.frozen.fingerprint() == print_before
    assert not network.backbone.body.layer3[0].bn1.training
    assert network.backbone.body.layer4[0].bn1.training
    assert network.backbone.body.layer4[0].conv1.weight.grad is not None


def test_fingerprint_follows_weights_and_cut(make_network):
    prints = set()
    for layer, changed in (("stage1", None), ("stage2", None), ("stage2", "stage1.reduce.weight")):
        network = make_network()
        cut = split_network(network, layer)
        if changed:
            network.backbone.body.get_parameter(changed).data[0, 0, 0, 0] += 1e-3
        prints.add(cut.frozen.fingerprint())
    assert len(prints) == 3
    network = make_network()
    cut = split_network(network, "stage2")
    network.backbone.body.stage3.refine.weight.data += 1  # after the cut: of no concern
    assert cut.frozen.fingerprint() in prints


def test_taps_after_the_cut(make_network, images):
    network = make_network("timm:test_resnet").eval()
    cut = split_network(network, "layer3")
    names = ["layer4", "pooled", "head.fc1", "embedding"]
    with torch.inference_mode():
        expected = network.layer_outputs(images, names)
        result = cut.rest.layer_outputs(cut.frozen(images), names)
    for name in names:
        torch.testing.assert_close(result[name], expected[name])
    with pytest.raises(ValueError, match=r"layer2 come before the freeze point layer3"):
        cut.rest.layer_outputs(images, ["layer2"])


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("timm:test_resnet", "layer3.0.conv1", r"but layer2, .*e\.g\. layer3\.0"),
        ("timm:vit_tiny_patch16_224", "blocks.5.mlp", r"e\.g\. blocks\.5"),
        ("bn_inception", "inception_4e_3x3", "inception_4e_pool"),
        ("timm:test_resnet", "layer3.0.act1x", "did you mean layer3.0.act1"),
        ("timm:test_resnet", "global_pool", "runs 0 times"),
        ("timm:test_resnet", "embedding", "no layer named 'embedding'"),
    ],
)
def test_impossible_cuts(make_network, name, layer, message):
    with pytest.raises(ValueError, match=message):
        split_network(make_network(name), layer)


class Awkward(nn.Module):
    """Layers that run twice, shared weights, and a branch on values."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        if kind == "shared":
            self.b.weight = self.a.weight

    def forward(self, x):
        if self.kind == "values" and x.sum() > 0:
            x = -x
        x = self.b(self.a(x))
        if self.kind == "mode" and self.training:
            x = x + 1
        return self.a(x) if self.kind == "twice" else x


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("twice", "cannot freeze until a: it runs 2 times"),
        ("shared", "1 parameters are on both sides"),
        ("values", "cannot freeze until a: .*freeze until pooled instead"),
        ("mode", "run otherwise in training"),
    ],
)
def test_awkward_networks(kind, message):
    network = EmbeddingNetwork(Backbone(Awkward(kind), 3, InputSpec(8)), Head(3, 2))
    with pytest.raises(ValueError, match=message):
        split_network(network, "a")


def test_a_mirrored_network_is_cut_where_both_images_are_one(images):
    def cut(mirror, layer="pooled"):
        backbone = create_backbone("small_conv", 32, mirror=mirror)
        return split_network(EmbeddingNetwork(backbone, Head(256, 8)).eval(), layer)

    torch.manual_seed(0)
    frozen, rest = cut(mirror=True)
    torch.testing.assert_close(rest(frozen(images)).embeddings, rest.network(images).embeddings)
    torch.manual_seed(0)
    assert cut(mirror=False).frozen.fingerprint() != frozen.fingerprint()
    with pytest.raises(ValueError, match="only pooled descriptors are the mean of both"):
        cut(mirror=True, layer="stage1")

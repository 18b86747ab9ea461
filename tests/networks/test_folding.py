"""Folded batch norms: the same result from fewer layers."""

import pytest
import torch
from torch import nn

from unseen.networks.folding import folded
from unseen.networks.frozen_batch_norm import batch_norms


def shaken(network: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for norm in batch_norms(network):
        norm.running_mean.normal_(0, 0.1, generator=generator)
        norm.running_var.uniform_(0.5, 1.5, generator=generator)
        norm.weight.data.uniform_(0.5, 1.5, generator=generator)
        norm.bias.data.normal_(0, 0.1, generator=generator)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "left"),
    [("timm:resnet18", 0), ("timm:efficientnet_b0", 0), ("efficientnet_lite0", 0)],
)
def test_same_result_without_batch_norms(make_network, images, name, left):
    body = shaken(make_network(name).backbone)
    with torch.inference_mode():
        before = body(images)[1]
        network = nn.Sequential(
            body.body if not hasattr(body.body, "forward_features") else Maps(body)
        )
        fast = folded(network.eval(), images)
        torch.testing.assert_close(fast(images), before, rtol=1e-3, atol=1e-4)
    assert fast is not network
    assert len(list(batch_norms(fast))) == left
    assert len(list(batch_norms(network))) > 10  # the original is untouched


class Maps(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images):
        return self.backbone.features(images)


class Shortcut(nn.Module):
    """The convolution's output is used a second time: folding would be wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        x = self.conv(x)
        return self.bn(x) + x


def test_refuses_what_would_change_the_result(images):
    network = shaken(Shortcut())
    assert folded(network, images) is network


def test_leaves_networks_in_training_alone(images):
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).train()
    assert folded(network, images) is network

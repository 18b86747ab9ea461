"""Folded batch norms: the same result from fewer layers."""

import pytest
import torch
from torch import nn

from unseen.models.backbone import create_backbone
from unseen.models.folded_training import FoldedConvolution, fold_in_training
from unseen.models.folding import folded
from unseen.models.frozen_batch_norm import batch_norms


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


def plain_pass(body: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Through every layer, batch norms as their formula says."""
    hooks = [
        norm.register_forward_hook(lambda m, i, o: normed(m, i[0])) for norm in batch_norms(body)
    ]
    try:
        return body.forward_features(images)
    finally:
        for hook in hooks:
            hook.remove()


def normed(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    values = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, var, gamma, beta = (value[None, :, None, None] for value in values)
    y = gamma * (x - mean) / (var + norm.eps) ** 0.5 + beta
    for child in norm.children():  # timm's activation
        y = child(y)
    return y


@pytest.mark.parametrize("name", ["efficientnet_lite0", "timm:resnet18"])
def test_training_is_that_of_the_two_layers(name):
    """Output and every gradient, in double precision, and the names on disk."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fast = create_backbone(name, 32, frozen_bn="full")
        slow = create_backbone(name, 32, frozen_bn="stats")
    shaken(slow).train()
    assert fast.state_dict().keys() == slow.state_dict().keys()
    fast.load_state_dict(slow.state_dict())
    fast, slow = fast.double(), slow.double()
    assert any(isinstance(layer, FoldedConvolution) for layer in fast.modules())
    assert not any(isinstance(layer, FoldedConvolution) for layer in slow.modules())
    images = torch.randn(
        2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    result, expected = fast.features(images), plain_pass(slow.body, images)
    torch.testing.assert_close(result, expected)
    result.square().mean().backward()
    expected.square().mean().backward()
    ours = dict(fast.named_parameters())
    for key, parameter in slow.named_parameters():
        if key in ours:  # gamma and beta are not trained
            torch.testing.assert_close(ours[key].grad, parameter.grad)
    assert len(ours) == sum(1 for layer in fast.modules() if isinstance(layer, nn.Conv2d))


def test_training_is_left_alone_where_folding_would_be_wrong(images):
    network = shaken(Shortcut())
    before = network(images)
    fold_in_training(network, network, images)
    assert type(network.conv) is nn.Conv2d
    assert not hasattr(network.conv, "norm")
    torch.testing.assert_close(network(images), before)


def test_wide_kernels_and_relu6_are_trained_in_their_own_way():
    network = create_backbone("efficientnet_lite0", 32, frozen_bn="full").train()
    seen, waiting = set(), [network.features(torch.zeros(1, 3, 32, 32)).grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [other for other, _ in node.next_functions]
    kinds = [node.name() for node in seen]
    wide = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[1] > 3]
    assert kinds.count("_DepthwiseBackward") == len(wide) > 5
    assert kinds.count("_ClampedBackward") > 20
    assert not [kind for kind in kinds if kind.startswith("Hardtanh")]

"""Frozen batch norm stays frozen: bit for bit, through training and any warm-up."""

import pytest
import torch
from torch import nn

from unseen.models.frozen_batch_norm import batch_norms

LEVELS = {"off": (False, False), "stats": (True, False), "full": (True, True)}


def snapshot(network):
    norms = list(batch_norms(network.backbone))
    statistics = [t.clone() for n in norms for t in (n.running_mean, n.running_var)]
    affine = [t.detach().clone() for n in norms for t in (n.weight, n.bias)]
    return statistics, affine


def same(before, after):
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:test_efficientnet"])
@pytest.mark.parametrize("level", LEVELS)
def test_levels_survive_train_and_warm_up(make_network, images, name, level):
    network = make_network(name, frozen_bn=level)
    statistics, affine = snapshot(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1)
    network.warm_up(only_new_layers=True)
    for step in range(2):
        network.train()
        optimizer.zero_grad()
        network(images).embeddings.square().sum().backward()
        optimizer.step()
        if step == 0:
            network.warm_up(only_new_layers=False)
            for parameter in network.parameters():  # what careless code does after a warm-up
                parameter.requires_grad_(True)
    after_statistics, after_affine = snapshot(network)
    keeps_statistics, keeps_affine = LEVELS[level]
    assert same(statistics, after_statistics) == keeps_statistics
    assert same(affine, after_affine) == keeps_affine


def test_warm_up_trains_new_layers_only(make_network, images):
    network = make_network("timm:test_resnet", pooling="gem")
    network.warm_up(only_new_layers=True)
    network(images).embeddings.sum().backward()
    trained = {name for name, p in network.named_parameters() if p.grad is not None}
    assert trained == {"backbone.pooling.p", "head.fc1.weight", "head.fc1.bias"}


def test_names_on_disk_stay(make_network):
    plain, frozen = (
        make_network("timm:test_resnet"),
        make_network("timm:test_resnet", frozen_bn="full"),
    )
    assert set(plain.state_dict()) == set(frozen.state_dict())
    plain.load_state_dict(frozen.state_dict())
    frozen.load_state_dict(plain.state_dict())


def test_new_batch_norm_in_a_head_is_not_frozen(make_network):
    network = make_network("timm:test_resnet", frozen_bn="full")
    network.head.add_module("bn", nn.BatchNorm1d(8))
    network.train()
    assert network.head.bn.training
    assert not network.backbone.body.bn1.training

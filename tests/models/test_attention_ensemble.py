"""The attention ensemble: its learners, written out one by one."""

import pytest
import torch
from torch import nn

from unseen.models.attention_ensemble import AttentionEnsemble
from unseen.models.backbone import Backbone, create_backbone
from unseen.models.body_spec import InputSpec
from unseen.models.freezing import split_network


@pytest.fixture(scope="module")
def ensemble() -> AttentionEnsemble:
    torch.manual_seed(0)
    backbone = create_backbone("googlenet", 64)
    for parameter in backbone.body.parameters():  # its own start lets maps fade out
        if parameter.ndim == 4:
            nn.init.kaiming_normal_(parameter)
    return AttentionEnsemble(backbone).eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def test_learners_one_by_one(ensemble, images):
    body = ensemble.backbone.body
    names = [name for name, _ in body.named_children()]
    after = names.index("maxpool3") + 1
    with torch.no_grad():
        output = ensemble(images)
        shared = body[:after](images)
        assert shared.shape[1] == 480
        deep = shared
        for block in "abcde":
            deep = ensemble.trunk.get_submodule(f"inception4{block}")(deep)
        for m in range(8):
            rows = slice(m * 480, (m + 1) * 480)
            kernel, bias = ensemble.masks.weight[rows], ensemble.masks.bias[rows]
            mask = torch.sigmoid(nn.functional.conv2d(deep, kernel, bias))
            pooled = body[after:](mask * shared).mean((2, 3))
            head = nn.functional.normalize(pooled @ ensemble.head.weight.T)
            torch.testing.assert_close(output.heads[:, m], head, rtol=1e-3, atol=1e-5)
    assert output.heads.shape == (3, 8, 64)
    torch.testing.assert_close(output.embeddings, output.heads.flatten(1))
    torch.testing.assert_close(output.embeddings.norm(dim=1), torch.full((3,), 8**0.5))


def test_the_trunk_is_a_copy_with_the_pretrained_start(ensemble):
    original = ensemble.backbone.body.inception4c.branch1.conv.weight
    copied = ensemble.trunk.get_submodule("inception4c").branch1.conv.weight
    assert torch.equal(original, copied)
    assert original.data_ptr() != copied.data_ptr()
    blocks = {key.split(".")[0] for key in ensemble.trunk.state_dict()}
    assert blocks == {f"inception4{block}" for block in "abcde"}


def test_equal_masks_make_one_learner(ensemble, images):
    masks = {key: value.clone() for key, value in ensemble.masks.state_dict().items()}
    with torch.no_grad():
        different = ensemble(images).heads
        ensemble.masks.weight.copy_(ensemble.masks.weight[:480].repeat(8, 1, 1, 1))
        heads = ensemble(images).heads
        ensemble.masks.load_state_dict(masks)
    torch.testing.assert_close(heads, heads[:, :1].expand_as(heads))
    assert not torch.allclose(different[:, 0], different[:, 1], atol=1e-4)


def test_taps_and_names(ensemble, images):
    with torch.inference_mode():
        taps = ensemble.layer_outputs(
            images, ["maxpool3", "trunk.inception4e", "inception5b", "pooled"]
        )
    sizes = {name: tuple(value.shape) for name, value in taps.items()}
    assert sizes["maxpool3"] == (3, 480)
    assert sizes["trunk.inception4e"] == (3, 832)
    assert sizes["inception5b"] == sizes["pooled"] == (3, 8 * 1024)
    assert len(set(ensemble.state_dict())) == len(ensemble.state_dict())


def test_on_another_backbone_every_parameter_learns():
    backbone = create_backbone("timm:resnet18", 32, frozen_bn="stats")
    ensemble = AttentionEnsemble(backbone, 32, 4, "layer3.0", "layer3.1").train()
    assert not ensemble.trunk.get_submodule("layer3.1").bn1.training
    output = ensemble(torch.randn(2, 3, 32, 32))
    (output.embeddings * torch.randn(2, 32)).sum().backward()
    assert all(p.grad is not None for p in ensemble.parameters())
    assert all(p.grad.abs().sum() > 0 for p in [*ensemble.masks.parameters(), ensemble.head.weight])
    ensemble.warm_up(only_new_layers=True)
    trainable = {name.split(".")[0] for name, p in ensemble.named_parameters() if p.requires_grad}
    assert trainable == {"masks", "head"}


def test_what_is_frozen_stays_so_in_the_trunk_as_well():
    body = create_backbone("timm:resnet18").body
    body.layer3[1].conv1.weight.requires_grad_(False)
    backbone = Backbone(body, 512, InputSpec(32))
    ensemble = AttentionEnsemble(backbone, 32, 4, "layer3.0", "layer3.1")
    ensemble.warm_up(only_new_layers=True)
    ensemble.warm_up(only_new_layers=False)
    frozen = [name for name, p in ensemble.named_parameters() if not p.requires_grad]
    assert frozen == ["backbone.body.layer3.1.conv1.weight", "trunk.layer3.1.conv1.weight"]


@pytest.mark.parametrize("layer", ["layer1.1", "layer2.1", "layer3.0"])
def test_frozen_up_to_the_masks_or_earlier(layer):
    backbone = create_backbone("timm:resnet18", 32, frozen_bn="stats")
    ensemble = AttentionEnsemble(backbone, 32, 4, "layer3.0", "layer3.1").train()
    images = torch.randn(2, 3, 32, 32)
    expected = ensemble(images)
    cut = split_network(ensemble, layer)
    result = cut.rest(cut.frozen(images))
    torch.testing.assert_close(result.heads, expected.heads)
    torch.testing.assert_close(result.maps, expected.maps)
    assert result.maps.shape[:2] == (2, 4 * 512)
    result.embeddings.sum().backward()
    frozen = {n for n, p in ensemble.named_parameters() if p.grad is None}
    assert all(n.startswith("backbone.body.") for n in frozen)
    assert "backbone.body.layer1.1.conv2.weight" in frozen
    assert "masks.weight" not in frozen
    taps = cut.rest.layer_outputs(cut.frozen(images), ["layer4.1", "trunk.layer3.1", "pooled"])
    assert taps["layer4.1"].shape == (2, 4 * 512)
    with pytest.raises(ValueError, match=r"layer1\.0 come before the freeze point"):
        cut.rest.layer_outputs(cut.frozen(images), ["layer1.0"])


@pytest.mark.parametrize("layer", ["layer3.1", "layer4", "pooled"])
def test_masks_before_the_cut_are_refused(layer):
    ensemble = AttentionEnsemble(
        create_backbone("timm:resnet18", 32), 32, 4, "layer3.0", "layer3.1"
    )
    with pytest.raises(ValueError, match=f"cannot freeze until {layer}: the masks of the ensemble"):
        split_network(ensemble, layer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((30, 4, "layer3.0", "layer3.1"), "embedding_size must be a multiple of num_heads"),
        ((32, 4, "layer2", "layer3"), "the trunk must end in a map of the same height and width"),
        ((32, 4, "layer3.1", "layer3.0"), "must come after masks_at"),
        ((32, 4, "layer3.0.bn1", "layer3.1"), "cannot freeze until layer3.0.bn1"),
        ((32, 4, "maxpool3", "inception4e"), "no layer named 'maxpool3'"),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        AttentionEnsemble(create_backbone("timm:resnet18", 32), *arguments)

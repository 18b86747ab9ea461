"""BN-Inception against its checkpoint's metadata and a block written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unseen.models.backbone import create_backbone, has_weights
from unseen.models.bn_inception import BnInception

BRANCHES = {
    "1x1": 1,
    "3x3_reduce": 1,
    "3x3": 3,
    "double_3x3_reduce": 1,
    "double_3x3_1": 3,
    "double_3x3_2": 3,
    "pool_proj": 1,
}


@pytest.fixture(scope="module")
def network() -> BnInception:
    torch.manual_seed(0)
    made = BnInception().eval()
    for layer in made.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
    return made


def unit(net, name, x, stride=1):
    convolution, norm = net.get_submodule(name), net.get_submodule(f"{name}_bn")
    x = F.conv2d(x, convolution.weight, convolution.bias, stride, convolution.kernel_size[0] // 2)
    x = (x - norm.running_mean[:, None, None]) / (norm.running_var[:, None, None] + 1e-5).sqrt()
    x = x * norm.weight[:, None, None] + norm.bias[:, None, None]
    return x.clamp(min=0)


def test_names(network):
    keys = set(network.state_dict())
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "5a", "5b"):
        for branch, kernel in BRANCHES.items():
            name = f"inception_{block}_{branch}"
            assert {f"{name}.weight", f"{name}.bias", f"{name}_bn.running_mean"} <= keys
            assert network.get_submodule(name).kernel_size == (kernel, kernel)
    for block in ("3c", "4e"):
        assert not [
            k for k in keys if k.startswith((f"inception_{block}_1x1", f"inception_{block}_p"))
        ]
    assert {"conv1_7x7_s2.weight", "conv2_3x3_reduce_bn.bias", "conv2_3x3.weight"} <= keys
    assert not [k for k in keys if "relu" in k or "output" in k or "bgr" in k]


def test_momentum(network):
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == 69
    assert {norm.momentum for norm in norms} == {0.1}


@pytest.mark.parametrize(("block", "channels", "is_max"), [("4a", 576, False), ("5b", 1024, True)])
def test_block_by_hand(network, block, channels, is_max):
    taken = {}
    before = {"4a": "inception_3c_output", "5b": "inception_5a_output"}[block]
    for name in (before, f"inception_{block}_output"):
        layer = network.get_submodule(name)
        layer.register_forward_hook(lambda m, i, o, name=name: taken.update({name: o}))
    with torch.no_grad():
        network(torch.randn(2, 3, 96, 96))
        x, name = taken[before], f"inception_{block}"
        assert x.shape[1] == channels
        pool = F.max_pool2d(x, 3, 1, 1) if is_max else F.avg_pool2d(x, 3, 1, 1)
        middle = unit(network, f"{name}_3x3", unit(network, f"{name}_3x3_reduce", x))
        double = unit(
            network, f"{name}_double_3x3_1", unit(network, f"{name}_double_3x3_reduce", x)
        )
        parts = [
            unit(network, f"{name}_1x1", x),
            middle,
            unit(network, f"{name}_double_3x3_2", double),
            unit(network, f"{name}_pool_proj", pool),
        ]
    torch.testing.assert_close(taken[f"{name}_output"], torch.cat(parts, 1), rtol=1e-4, atol=1e-5)


def test_red_lands_in_the_last_channel(network):
    backbone = create_backbone("bn_inception")
    red = torch.zeros(1, 3, 8, 8)
    red[:, 0] = 1.0
    mean, std = (
        torch.tensor(v)[:, None, None] for v in (backbone.input_spec.mean, backbone.input_spec.std)
    )
    seen = backbone.body.to_bgr((red - mean) / std)[0, :, 0, 0]
    torch.testing.assert_close(seen, torch.tensor([-104.0, -117.0, 255.0 - 128.0]))


def test_the_common_checkpoint_is_found_in_the_cache_of_torch(network, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert not has_weights("bn_inception")
    with pytest.raises(ValueError, match=r"weights=FILE .*52deb4733.* into .*checkpoints"):
        create_backbone("bn_inception", weights="imagenet")
    (tmp_path / "checkpoints").mkdir()
    torch.save(network.state_dict(), tmp_path / "checkpoints" / "bn_inception-52deb4733.pth")
    assert has_weights("bn_inception")
    loaded = create_backbone("bn_inception", weights="imagenet").body.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in network.state_dict().items())


def test_old_and_new_checkpoints_load(network, tmp_path):
    state = {k: v for k, v in network.state_dict().items() if "num_batches" not in k}
    torch.save(state | {"last_linear.weight": torch.zeros(1000, 1024)}, tmp_path / "new.pth")
    old = {k: v[None] if "_bn." in k else v for k, v in state.items()}
    torch.save(old | {"fc.bias": torch.zeros(1000)}, tmp_path / "old.pth")
    for name in ("new.pth", "old.pth"):
        loaded = create_backbone("bn_inception", weights=str(tmp_path / name)).body.state_dict()
        assert all(torch.equal(loaded[key], state[key]) for key in state)

"""Weights from a file: whole or not at all."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from unseen.models.backbone import create_backbone
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.models.weights import fill, load_weights


def changed(body: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value + 1 for key, value in body.state_dict().items()}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_round_trip(tmp_path, suffix):
    state = changed(create_backbone("small_conv").body)
    path = tmp_path / f"weights{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    loaded = create_backbone("small_conv", weights=str(path)).body.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_nested_state_dict_and_classifier(tmp_path):
    body = create_backbone("resnet50").body
    state = changed(body) | {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pth")
    loaded = create_backbone("resnet50", weights=str(tmp_path / "w.pth")).body.state_dict()
    assert torch.equal(loaded["layer4.2.conv3.weight"], state["layer4.2.conv3.weight"])


def test_weights_of_a_run_give_their_backbone(tmp_path):
    backbone = create_backbone("small_conv")
    network = EmbeddingNetwork(backbone, Head(256, 8))
    save_file({k: v + 1 for k, v in network.state_dict().items()}, tmp_path / "w.safetensors")
    loaded = create_backbone("small_conv", weights=str(tmp_path / "w.safetensors"))
    torch.testing.assert_close(loaded.body.stem.weight, backbone.body.stem.weight + 1)


def test_every_misfit_is_reported_and_nothing_is_loaded():
    body = create_backbone("small_conv").body
    before = {key: value.clone() for key, value in body.state_dict().items()}
    state = changed(body)
    del state["stem.weight"]
    state["stage9.weight"] = torch.zeros(1)
    state["stage3.refine.weight"] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="do not fit") as error:
        fill(body, state, "x.pth")
    message = str(error.value)
    assert "1 missing: stem.weight" in message
    assert "1 unexpected: stage9.weight" in message
    assert "stage3.refine.weight [2, 2] instead of [256, 256, 3, 3]" in message
    assert all(torch.equal(before[key], value) for key, value in body.state_dict().items())


def test_long_lists_are_cut():
    with pytest.raises(ValueError, match=r"21 missing: .* and 13 more"):
        fill(create_backbone("small_conv").body, {}, "x.pth")


class Harmful:
    def __reduce__(self):
        return (print, ("harm",))


def test_unreadable_files(tmp_path, capsys):
    body = create_backbone("small_conv").body
    with pytest.raises(ValueError, match=r"no such weights file: .*nowhere\.pth"):
        load_weights(body, tmp_path / "nowhere.pth")
    for name in ("broken.pth", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not weights")
        with pytest.raises(ValueError, match=rf"{name} is no weights file that can be read"):
            load_weights(body, tmp_path / name)
    torch.save({"stem.weight": Harmful()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="is no weights file that can be read"):
        load_weights(body, tmp_path / "evil.pth")
    assert "harm" not in capsys.readouterr().out
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="holds no dictionary of tensors"):
        load_weights(body, tmp_path / "list.pth")

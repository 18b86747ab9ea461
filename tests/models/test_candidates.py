"""Which backbones can be compared: installed, cached, named, recommended."""

from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from unseen.models import candidates
from unseen.models.candidates import Candidate


def test_words_name_candidates_and_settings() -> None:
    words = ["resnet50", "timm:a.b=f.pth", "./x.py:Net=w.pt", "image_size=96", "vgg16_bn=v.pth"]
    named, settings = candidates.from_words(words)
    assert settings == ["image_size=96"]
    assert named == [
        Candidate("resnet50"),
        Candidate("timm:a.b", "f.pth"),
        Candidate("./x.py:Net", "w.pt"),
        Candidate("vgg16_bn", "v.pth"),
    ]
    assert [each.title for each in named[1:3]] == ["timm:a.b (f.pth)", "Net (w.pt)"]


def test_caches_of_this_disk_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert candidates.cached_backbones() == []
    files = [
        "torch/checkpoints/googlenet-1378be20.pth",
        "hub/models--timm--resnet18.a1_in1k/snapshots/x/model.safetensors",
        "hub/models--timm--resnet34.a1_in1k/snapshots/x/config.json",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    found = candidates.cached_backbones()
    assert found == ["googlenet", "timm:resnet18.a1_in1k"]
    monkeypatch.setattr(candidates, "has_weights", lambda name: name == "efficientnet_lite0")
    twice = [Candidate("googlenet"), Candidate("googlenet", "own.pth")]
    every = [each.title for each in candidates.candidates_of(twice)]
    assert every == ["efficientnet_lite0", *found, "googlenet (own.pth)"]


def test_licences_and_published_figures() -> None:
    """Of a file nobody knows them."""
    dino = Candidate("timm:vit_small_patch14_dinov2.lvd142m")
    assert dino in candidates.recommended()
    assert dino.published == {"cub200": 83.5, "cars196": 49.3, "online_products": 48.2}
    assert dino.licence == Candidate("timm:resnet18.a1_in1k").licence.title() == "Apache-2.0"
    file = Candidate(dino.backbone, "mine.pth")
    assert (file.licence, file.published) == ("not stated", {})
    assert all(each.published and "NC" not in each.licence for each in candidates.recommended())

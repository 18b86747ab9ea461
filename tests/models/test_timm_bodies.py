"""From an image file to its vector as timm has it: resizing, crop, positions, pooling, names."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import unseen.core.torchvision_operators  # noqa: F401 - before timm

# isort: split
import timm
from timm.data import create_transform, resolve_data_config

from unseen.data.images import transforms
from unseen.data.images.decode import SafeImageFile
from unseen.losses import TripletLoss
from unseen.models import timm_bodies
from unseen.models.backbone import Backbone, backbone_info, create_backbone
from unseen.models.body_spec import InputSpec, input_spec_of
from unseen.models.descriptor import Described
from unseen.models.freezing import split_network
from unseen.models.head import Head
from unseen.models.lora import adapt, merge
from unseen.models.map_positions import places_of
from unseen.models.network import EmbeddingNetwork
from unseen.models.weights import unwrapped
from unseen.regularizers import HordeRegularizer

VIT = {"depth": 2, "embed_dim": 48, "num_heads": 3}
CONVNEXT = {"depths": [1, 1, 1, 1], "dims": [8, 16, 24, 32]}
FAMILIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "vit": ("vit_tiny_patch16_224", 64, VIT),
    "dinov2": ("vit_small_patch14_dinov2", 56, VIT),
    "dinov2_registers": ("vit_small_patch14_reg4_dinov2", 56, VIT),
    "dinov3": ("vit_small_patch16_dinov3", 64, VIT),
    "siglip": ("vit_base_patch16_siglip_224", 64, VIT),
    "clip": ("vit_base_patch16_clip_224", 64, VIT),
    "eva02": ("eva02_base_patch14_224", 56, VIT),
    "swin": (
        "swin_tiny_patch4_window7_224",
        56,
        {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 2]},
    ),
    "convnext": ("convnext_atto", 64, CONVNEXT),
    "convnext_squeezed": ("convnext_tiny.fb_in22k_ft_in1k_384", 64, CONVNEXT),
    "efficientnet": ("test_efficientnet", 64, {}),
    "mobilenetv3": ("mobilenetv3_small_050", 64, {}),
}


def saved(family: str, folder: Path) -> Path:
    """A folder as hubs hold it: config.json and weights, here random ones."""
    architecture, size, values = FAMILIES[family]
    settings = dict(values) | ({"img_size": size} if "embed_dim" in values else {})
    overlay = {"input_size": (3, size, size)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = timm.create_model(architecture, pretrained_cfg_overlay=overlay, **settings)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape)
    timm.models.save_for_hf(model, folder, model_args=settings, safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("timm")
    return {family: saved(family, root / family) for family in FAMILIES}


@pytest.fixture(scope="module")
def image() -> Image.Image:
    """Slopes, edges and grain."""
    generator = np.random.default_rng(0)
    rough = Image.fromarray(generator.integers(0, 255, (31, 43, 3), dtype=np.uint8))
    smooth = rough.resize((860, 620), Image.Resampling.BICUBIC).filter(ImageFilter.BoxBlur(3))
    smooth.paste((250, 240, 20), (120, 160, 380, 400))
    return smooth


def timms(folder: Path, file: Path) -> Tensor:
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    transform: Any = create_transform(**resolve_data_config({}, model=model))
    with torch.inference_mode():
        features = model.forward_features(transform(Image.open(file).convert("RGB"))[None])
        vector: Tensor = model.forward_head(features, pre_logits=True)[0]
    return vector


def prepared(backbone: Backbone, file: Path) -> Tensor:
    spec = backbone.input_spec
    _, transform = transforms.named("base", spec.size, spec.mean, spec.std, None, spec.resizing)
    with SafeImageFile(file) as image:
        return transform(image, np.random.default_rng(0))[None]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_image_file_becomes_timms_vector(
    family: str, folders: dict[str, Path], image: Image.Image, tmp_path: Path
) -> None:
    folder, name = folders[family], f"timm:local-dir:{folders[family]}"
    backbone = create_backbone(name, weights="imagenet").eval()
    loaded = create_backbone(name, weights=str(folder / "model.safetensors")).eval()
    image.save(tmp_path / "image.png")
    image.save(tmp_path / "image.jpg", quality=90)
    with torch.inference_mode():
        png, jpeg = (prepared(backbone, tmp_path / f"image.{kind}") for kind in ("png", "jpg"))
        vector, fast = backbone(png)[0][0], backbone(jpeg)[0][0]
        assert torch.equal(loaded(png)[0][0], vector)
    expected = timms(folder, tmp_path / "image.png")
    assert vector.shape == (backbone.num_features,) == (backbone_info(name).num_features,)
    torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)
    of_jpeg = timms(folder, tmp_path / "image.jpg")
    assert torch.cosine_similarity(fast, of_jpeg, dim=0) > 0.999
    assert input_spec_of(backbone.body, None) == backbone.input_spec


def test_positions_are_interpolated_as_timm_does(
    folders: dict[str, Path], image: Image.Image, tmp_path: Path
) -> None:
    """From 56 px to 84: a file of weights, whose positions are of another size."""
    folder = folders["dinov2_registers"]
    name, file = f"timm:local-dir:{folder}", folder / "model.safetensors"
    model: Any = timm.create_model(f"local-dir:{folder}", True, num_classes=0, img_size=84)
    backbone = create_backbone(name, 84, weights=str(file))
    images = torch.randn(2, 3, 84, 84)
    expected = model.eval().forward_head(model.forward_features(images), pre_logits=True)
    torch.testing.assert_close(backbone.eval()(images)[0], expected)
    assert backbone(images)[1].shape[2:] == (6, 6)
    with pytest.raises(ValueError, match=r"image_size=90: local-dir.* patches of 14 px.* 84"):
        create_backbone(name, 90)
    wide = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=(32, 64), **VIT)
    state = {key: value for key, value in wide.state_dict().items()}  # noqa: C416
    state["pos_embed"] = torch.randn(1, 1 + 9, 48)  # of a square of 3 x 3 patches
    renamed = timm_bodies.renamed(state, wide)["pos_embed"]
    assert renamed.shape == wide.pos_embed.shape
    assert Backbone(wide, 48, InputSpec(32)).grid(8) == (2, 4)


@pytest.mark.parametrize("family", ["swin", "convnext", "clip"])
def test_a_file_without_classifier_is_read_at_another_size_too(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    name, size = f"timm:local-dir:{folders[family]}", 2 * FAMILIES[family][1]
    body = create_backbone(name, weights="imagenet").body
    save_file(body.state_dict(), tmp_path / "w.safetensors")
    images = torch.randn(1, 3, size, size)
    loaded, published = (
        create_backbone(name, size, weights=weights).eval()
        for weights in (str(tmp_path / "w.safetensors"), "imagenet")
    )
    torch.testing.assert_close(loaded(images)[0], published(images)[0])


def wrapped(state: dict[str, Tensor]) -> dict[str, Any]:
    """As DINO's and Lightning's checkpoints hold a backbone."""
    inner = {f"module.backbone.{key}": value for key, value in state.items()}
    inner["module.head.last.weight"] = torch.zeros(2)
    return {"epoch": 3, "teacher": inner, "student": {"other": torch.zeros(1)}}


def test_a_wrapped_checkpoint_is_read_and_what_was_stripped_is_said(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = load_file(folders["vit"] / "model.safetensors")
    torch.save(wrapped(state), tmp_path / "dino.pth")
    name = f"timm:local-dir:{folders['vit']}"
    with caplog.at_level(logging.WARNING, "unseen.weights"):
        body = create_backbone(name, weights=str(tmp_path / "dino.pth")).body
    assert torch.equal(body.state_dict()["cls_token"], state["cls_token"])
    (record,) = caplog.records
    assert record.getMessage() == (
        f"weights from {tmp_path}/dino.pth: what is under 'teacher', of that what begins with "
        "'module.', of that what begins with 'backbone.' (without it: head.last.weight)"
    )
    own = nn.Sequential()
    own.add_module("model", nn.Linear(2, 2))
    content = {"state_dict": {f"module.{k}": v for k, v in own.state_dict().items()}}
    assert unwrapped(content, own.state_dict())[0].keys() == own.state_dict().keys()


def test_pooling_of_tokens(folders: dict[str, Path]) -> None:
    images, of = torch.randn(2, 3, 56, 56), f"timm:local-dir:{folders['dinov2_registers']}"
    with torch.inference_mode():
        tokens = create_backbone(of, weights="imagenet").eval().features(images)
        expected = {
            "cls": tokens[:, 0],
            "avg": tokens[:, 5:].mean(dim=1),
            "cls+avg": torch.cat([tokens[:, 0], tokens[:, 5:].mean(dim=1)], dim=1),
            "max": tokens[:, 5:].amax(dim=1),
            "own": tokens[:, 0],
        }
        for pooling, vectors in expected.items():
            backbone = create_backbone(of, weights="imagenet", pooling=pooling).eval()
            assert backbone.num_features == backbone_info(of, pooling).num_features
            torch.testing.assert_close(backbone(images)[0], vectors)
        images = torch.randn(2, 3, 64, 64)
        with_attention = f"timm:local-dir:{folders['siglip']}"
        own, other = (
            create_backbone(with_attention, weights="imagenet", pooling=pooling).eval()(images)[0]
            for pooling in ("own", "attention")
        )
        assert torch.equal(own, other)
        eva, averaged = (
            create_backbone(f"timm:local-dir:{folders['eva02']}", None, "imagenet", pooling).eval()
            for pooling in ("own", "avg")
        )
        torch.testing.assert_close(
            eva(images[..., :56, :56])[0], averaged(images[..., :56, :56])[0]
        )


@pytest.mark.parametrize(
    ("family", "pooling", "message"),
    [
        ("siglip", "cls", "no class token"),
        ("dinov2", "attention", "no attention pooling"),
        ("convnext", "cls+avg", "no class token"),
    ],
)
def test_a_pooling_the_network_does_not_have(
    folders: dict[str, Path], family: str, pooling: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        create_backbone(f"timm:local-dir:{folders[family]}", pooling=pooling)


def test_tokens_of_no_place_are_in_no_layer_output_and_no_map(folders: dict[str, Path]) -> None:
    backbone = create_backbone(
        f"timm:local-dir:{folders['dinov2_registers']}", weights="imagenet", pooling="avg"
    )
    network = EmbeddingNetwork(backbone, Head(48, 4)).double().eval()
    images, seen = torch.randn(2, 3, 56, 56).double(), {}
    body: Any = backbone.body
    body.blocks[0].register_forward_hook(lambda _, x, y: seen.update(block=y))
    body.blocks[1].attn.q_norm.register_forward_hook(lambda _, x, y: seen.update(heads=y))
    body.patch_embed.register_forward_hook(lambda _, x, y: seen.update(patches=y))
    layers = ["blocks.0", "blocks.1.attn.q_norm", "patch_embed"]
    with torch.inference_mode():
        outputs = network.layer_outputs(images, layers)
    expected = {
        "blocks.0": seen["block"][:, 5:].mean(dim=1),
        "blocks.1.attn.q_norm": seen["heads"][:, :, 5:].mean(dim=2).flatten(1),
        "patch_embed": seen["patches"].mean(dim=1),
    }
    for layer, vectors in expected.items():
        torch.testing.assert_close(outputs[layer], nn.functional.normalize(vectors))
    of_layer = places_of(Described(network.float(), "blocks.0").double(), images[0])
    sums = of_layer.parts.sum(dim=0)
    torch.testing.assert_close(sums / sums.norm(), outputs["blocks.0"][0])


def test_places_are_those_of_patches(folders: dict[str, Path]) -> None:
    name = f"timm:local-dir:{folders['dinov2_registers']}"
    backbone = create_backbone(name, weights="imagenet", pooling="avg")
    network = EmbeddingNetwork(backbone, Head(48, 4)).double().eval()
    images = torch.randn(1, 3, 56, 56).double()
    with torch.no_grad():
        tokens = backbone.features(images)[0]
        places = places_of(network, images[0])
        descriptor = network(images).embeddings[0]
    linear: Any = network.head.get_submodule("fc1")
    assert places.is_exact
    assert places.grid == (4, 4)
    torch.testing.assert_close(places.parts, (tokens[5:] @ linear.weight.T + linear.bias) / 16)
    torch.testing.assert_close(places.parts.sum(dim=0), descriptor)
    for pooling in ("own", "cls", "cls+avg"):  # of the class token no place says anything
        other = create_backbone(name, weights="imagenet", pooling=pooling)
        whole = EmbeddingNetwork(other, Head(other.num_features, 4)).double().eval()
        assert places_of(whole, images[0]).on_pixels


class OwnNames(nn.Module):
    """Tokens as DINOv2's authors call them."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.register_tokens = nn.Parameter(torch.zeros(1, 3, 4))
        self.mask_token = nn.Parameter(torch.zeros(1, 4))


def test_prefix_tokens_of_other_sources_are_known_by_their_names() -> None:
    assert Backbone(nn.Sequential(OwnNames()), 4, InputSpec(8)).num_prefix == 4


def test_horde_takes_tokens_as_local_features(folders: dict[str, Path]) -> None:
    backbone = create_backbone(f"timm:local-dir:{folders['vit']}", weights="imagenet")
    network = EmbeddingNetwork(backbone, Head(48, 4))
    make: Any = lambda size: TripletLoss()  # noqa: E731
    horde = HordeRegularizer(make, None, num_channels=48, embedding_size=4, dimension=8)
    output = network(torch.randn(4, 3, 64, 64))
    tokens = backbone.features(torch.zeros(1, 3, 64, 64))[:, 1:]
    assert output.maps is not None
    assert output.maps.flatten(2).mT.shape[1:] == tokens.shape[1:]
    loss = horde.on_output(output, torch.tensor([0, 0, 1, 1]))
    loss.backward()
    assert backbone.body.get_parameter("blocks.0.attn.qkv.weight").grad is not None


def test_names_that_cannot_be_made_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ConnectionRefusedError("no network")

    monkeypatch.setattr(timm_bodies.socket, "create_connection", refused)
    monkeypatch.setattr(timm_bodies, "getproxies", dict)
    monkeypatch.setattr(timm_bodies.constants, "HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "dinov2"}))
    for name, reason in {
        "timm:hf-hub:someone/model": "https.* cannot be reached, and its cache has none",
        f"timm:local-dir:{tmp_path}/none": "Config file not found: .*none/config.json",
        f"timm:local-dir:{tmp_path}": "its config.json names no 'architecture'",
        "timm:other:model": "Unknown model source 'other'",
        "timm:resnet18.nobodys": "Invalid pretrained tag",
    }.items():
        with pytest.raises(ValueError, match=f"^timm cannot make .*{reason}") as error:
            backbone_info(name)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("family", "layers"),
    [("vit", ["qkv", "proj"]), ("eva02", ["q_proj", "k_proj", "v_proj", "proj"]), ("dinov3", [])],
)
def test_adapters_of_attention_fused_or_not(
    folders: dict[str, Path], family: str, layers: list[str]
) -> None:
    """Behind a cut at a block, whose tokens are cached; merged, the network is the one trained."""
    name = f"timm:local-dir:{folders[family]}"
    network = EmbeddingNetwork(create_backbone(name, weights="imagenet"), Head(48, 4))
    split = split_network(network, "blocks.0")
    frozen = list(split.frozen.modules())
    adapted = adapt(network.backbone, 2, layers=["attn"], frozen=frozen)
    if layers:
        assert adapted == [f"blocks.1.attn.{layer}" for layer in layers]
    assert adapted
    assert all(name.startswith("blocks.1.attn") for name in adapted)
    size = network.backbone.input_spec.size
    tokens = split.frozen(torch.randn(2, 3, size, size))
    loss = split.rest(tokens).embeddings.square().sum()
    loss.backward()
    with torch.no_grad():
        for parameter in network.backbone.body.parameters():
            parameter.data += torch.randn_like(parameter) if parameter.requires_grad else 0
        network.eval()
        before = split.rest(tokens).embeddings
        merge(network)
        torch.testing.assert_close(split.rest(tokens).embeddings, before)


@pytest.mark.parametrize("family", ["dinov2_registers", "siglip", "dinov3"])
def test_bf16_is_near_float32(folders: dict[str, Path], family: str) -> None:
    backbone = create_backbone(f"timm:local-dir:{folders[family]}", weights="imagenet").eval()
    size = backbone.input_spec.size
    images = torch.randn(4, 3, size, size)
    with torch.inference_mode():
        vectors = backbone(images)[0]
        with torch.autocast("cpu", torch.bfloat16):
            short = backbone(images)[0].float()
    assert torch.cosine_similarity(short, vectors).min() > 0.99


@pytest.mark.slow
def test_dinov2_small_from_a_file_goes_the_whole_way(tmp_path: Path) -> None:
    """Random weights at 518 px, used at 224: train with adapters, evaluate, index, explain,
    export, as commands."""
    model: Any = timm.create_model("vit_small_patch14_dinov2")
    torch.save({"teacher": model.state_dict()}, tmp_path / "dinov2.pth")
    generator = np.random.default_rng(0)
    for c in range(10):
        folder = tmp_path / "photos" / f"kind {c}"
        folder.mkdir(parents=True)
        color = generator.integers(40, 200, 3)
        for i in range(4):
            pixels = color + generator.integers(0, 40, (300, 260, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.jpg")
    backbone = "backbone=timm:vit_small_patch14_dinov2"
    words = [backbone, "weights=dinov2.pth", "image_size=224", "pooling=avg", "adapter=lora"]
    words += ["adapter.layers=['attn']", "freeze_until=blocks.9", "epochs=1", "sampler.steps=2"]
    words += ["batch_size=8", "embedding_size=16", "threads=1", "workers=0", "transform=base"]
    words += ["cached_augmentations=1", "validation_fraction=0.34"]
    photo = "photos/kind 5/0.jpg"
    for command in (
        ["train", "photos", *words, "--out", "run"],
        ["evaluate", "run", "run"],
        ["index", "build", "run", "photos", "--out", "index"],
        ["search", "index", photo],
        ["inspect", "explain", "run", photo, "photos/kind 4/1.jpg"],
        ["export", "run", "--bundle", "bundle"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "unseen", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        if command[0] == "train":
            assert done.stderr.count("what is under 'teacher'") == 1
        if command[1] == "explain":
            assert "exact" in done.stdout
    preprocessing = json.loads((tmp_path / "bundle/preprocessing.json").read_text())
    assert preprocessing["interpolation"] == "bicubic, antialiased"
    assert (preprocessing["to"], preprocessing["size"]) == (224, 224)

"""Exported models say what PyTorch says, for every family of backbones, and carry their words."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen import assemble
from unseen import config as configs
from unseen.experiment.trained import Trained
from unseen.export import bundle
from unseen.export import inference as inferring
from unseen.export.inference import as_input, describe, inference
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.training.run_folder import RunFolder

FAMILIES = [
    "small_conv",
    "efficientnet_lite0",
    "resnet50",
    "vgg16_bn",
    "googlenet",
    "bn_inception",
    "timm:vit_tiny_patch16_224",
]


def size_of(backbone: str) -> int:
    return 64 if backbone.startswith("timm") or "incept" in backbone or "goo" in backbone else 40


def random_run(folder: Path, backbone: str, *words: str) -> Trained:
    """A run as training leaves it, with starting weights."""
    values = [
        f"backbone={backbone}",
        "weights=none",
        "pooling=own",
        "freeze_until=none",
        f"picture_size={size_of(backbone)}",
        "embedding_size=16",
        "device=cpu",
        "threads=1",
        "workers=0",
        "normalise=true",
        "views=0",
        "miner=none",
        "batch_size=8",
        "epochs=1",
        "lr=0.1",
        "validation_share=0.5",
        "transform=small" if backbone == "small_conv" else "transform=base",
    ]
    config = configs.make_settled(configs.override({}, [*values, *words]))
    run = RunFolder(folder)
    run.write_text("config.toml", config.to_toml())
    run.write_tensors("weights.safetensors", assemble.network(config).state_dict())
    return Trained.open(folder)


def real_pictures(count: int = 3) -> list[Image.Image]:
    """Photographs would be better; shapes and slopes have edges and colours too."""
    made = []
    for seed in range(count):
        generator = np.random.default_rng(seed)
        picture = Image.new("RGB", (90, 70), tuple(generator.integers(0, 255, 3).tolist()))
        for _ in range(6):
            colour = tuple(generator.integers(0, 255, 3).tolist())
            left, top = generator.integers(0, 60, 2).tolist()
            picture.paste(colour, (left, top, left + 25, top + 15))
        made.append(picture)
    return made


@pytest.mark.parametrize(
    "backbone",
    [FAMILIES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])],
)
def test_onnx_says_what_torch_says_and_how_it_wants_its_pictures(
    tmp_path: Path, backbone: str
) -> None:
    trained = random_run(tmp_path / "run", backbone)
    pictures = as_input(trained, real_pictures())
    assert write_onnx(trained, tmp_path / "model.onnx", pictures) <= 1e-4
    assert [file.name for file in tmp_path.iterdir() if "part" in file.name] == []
    onnx = pytest.importorskip("onnx")
    told = {p.key: p.value for p in onnx.load(str(tmp_path / "model.onnx")).metadata_props}
    assert told["model"] == trained.fingerprint
    assert json.loads(told["preprocessing"])["size"] == size_of(backbone)


@pytest.mark.slow
@pytest.mark.parametrize("descriptor", ["stage2", "pooled"])
def test_onnx_of_another_layer(tmp_path: Path, descriptor: str) -> None:
    trained = random_run(tmp_path / "run", "small_conv", f"descriptor={descriptor}")
    assert trained.network.embedding_size != 16
    pictures = as_input(trained, real_pictures())
    assert write_onnx(trained, tmp_path / "model.onnx", pictures) <= 1e-4


@pytest.mark.parametrize(
    "normalised", [("true",), pytest.param(("true", "false"), marks=pytest.mark.slow)], ids=len
)
def test_programs_open_with_torch_alone(normalised: tuple[str, ...], tmp_path: Path) -> None:
    expected = {}
    for normalise in normalised:
        folder = tmp_path / normalise
        trained = random_run(folder, "small_conv", f"normalise={normalise}")
        pictures = as_input(trained, real_pictures())
        assert write_program(trained, folder / "model.pt2", pictures) <= 1e-4
        np.save(folder / "pictures.npy", pictures.numpy())
        with torch.inference_mode():
            expected[folder] = inference(trained)(pictures)
    script = (
        "import sys, numpy, torch\n"
        "for folder in sys.argv[1:]:\n"
        "    program = torch.export.load(folder + '/model.pt2').module()\n"
        "    pictures = torch.from_numpy(numpy.load(folder + '/pictures.npy'))\n"
        "    numpy.save(folder + '/vectors.npy', program(pictures).detach().numpy())\n"
        "assert not any(name.startswith('unseen') for name in sys.modules)\n"
    )
    words = [sys.executable, "-c", script, *map(str, expected)]
    subprocess.run(words, check=True, cwd=tmp_path)
    for folder, vectors in expected.items():
        np.testing.assert_allclose(np.load(folder / "vectors.npy"), vectors, atol=1e-5)


def test_the_input_is_what_evaluation_sees(tmp_path: Path) -> None:
    trained = random_run(tmp_path / "run", "efficientnet_lite0")
    pictures = real_pictures()
    with torch.inference_mode():
        made = inference(trained)(as_input(trained, pictures))
    torch.testing.assert_close(made, trained.embed(pictures), atol=1e-4, rtol=1e-3)
    told = describe(trained)
    assert told["resize"] == "short side"
    assert told["crop"] == "centre 40 x 40"


@pytest.mark.parametrize("words", [[], ["transform=horde"], ["transform=small"]])
@pytest.mark.parametrize("size", [(90, 71), (67, 120), (24, 30)])
def test_the_code_of_the_card_feeds_the_model_as_we_do(
    tmp_path: Path, words: list[str], size: tuple[int, int]
) -> None:
    """Pillow alone: odd sides, where rounding instead of cutting would move the picture."""
    trained = random_run(tmp_path / "run", "small_conv", "transform=base", *words)
    picture = real_pictures(1)[0].resize(size)
    picture.save(tmp_path / "picture.png")
    text = bundle.card(trained, None)
    code = text.split("```python\n")[1].split("```")[0].replace("picture.jpg", "picture.png")
    before_the_model = code.split("session = ")[0].replace("from onnxruntime", "# from onnxruntime")
    names: dict[str, np.ndarray] = {}
    with contextlib.chdir(tmp_path):
        exec(before_the_model, names)
    ours = as_input(trained, [picture]).numpy()
    assert names["pictures"].shape == ours.shape
    assert np.abs(names["pictures"].astype(int) - ours).max() <= 1


def test_the_code_of_the_card_runs_with_pillow_and_onnxruntime_alone(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    trained = random_run(tmp_path / "run", "small_conv", "transform=base")
    picture = real_pictures(1)[0]
    write_onnx(trained, tmp_path / "model.onnx", as_input(trained, [picture]))
    picture.save(tmp_path / "picture.png")
    code = bundle.card(trained, None).split("```python\n")[1].split("```")[0]
    names: dict[str, np.ndarray] = {}
    with contextlib.chdir(tmp_path):
        exec(code.replace("picture.jpg", "picture.png"), names)
    cosine = (torch.from_numpy(names["vectors"][0]) * trained.embed(picture)).sum()
    assert float(cosine) > 0.9999


def test_a_model_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferring, "TOLERANCE", -1.0)
    trained = random_run(tmp_path / "run", "small_conv")
    with pytest.raises(ValueError, match="differs from PyTorch by"):
        write_program(trained, tmp_path / "model.pt2", as_input(trained, real_pictures()))
    assert not (tmp_path / "model.pt2").exists()


def test_a_bundle_opens_without_our_code(tmp_path: Path) -> None:
    trained = random_run(tmp_path / "run", "small_conv")
    score = {"value": 0.5, "low": 0.4, "high": 0.6}
    split = {"train_classes": 5, "validation_classes": 3, "test_classes": 8}
    scores = {"trained": {"metrics": {"recall@1": score}}}
    trained.folder.write_json("result.json", {"split": split, "scores": scores})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle.importlib.util, "find_spec", lambda name: None)  # without ONNX
        pictures = as_input(trained, real_pictures())
        made = bundle.write_bundle(trained, tmp_path / "bundle", pictures)
    assert set(made) == {"model.pt2"}
    sums = (tmp_path / "bundle" / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1] for line in sums} >= {"weights.safetensors", "README.md", "config.toml"}
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "judged on 8 classes" in card
    assert "| recall@1 | 0.5000 | 0.4000 to 0.6000 |" in card
    assert "Not calibrated" in card
    with pytest.raises(ValueError, match="exists already"):
        bundle.write_bundle(trained, tmp_path / "bundle", pictures)

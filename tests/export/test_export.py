"""Exported models say what PyTorch says, for every family of backbones, and carry their words."""

import html
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.config import build
from unseen.config import schema as configs
from unseen.data.images.decode import decode
from unseen.data.images.load_image import load_image
from unseen.data.in_memory.user_data import as_image
from unseen.export import bundle
from unseen.export import inference as inferring
from unseen.export.agreement import EXAMPLE, MODES, agreement, write_files
from unseen.export.inference import as_input, describe, inference
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.runs import trained_run
from unseen.runs.trained_run import Trained
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


class Bundled(NamedTuple):
    """A bundle and the code of its card."""

    run: Trained
    folder: Path
    code: str
    cosine: float


def size_of(backbone: str) -> int:
    return 64 if backbone.startswith("timm") or "incept" in backbone or "goo" in backbone else 40


def random_run(folder: Path, backbone: str, *words: str) -> Trained:
    """A run as training leaves it, with starting weights."""
    values = [
        f"backbone={backbone}",
        "weights=none",
        "pooling=own",
        "freeze_until=none",
        f"image_size={size_of(backbone)}",
        "embedding_size=16",
        "device=cpu",
        "threads=1",
        "workers=0",
        "cpu_processes=1",
        "depth=full",
        "micro_batch=none",
        "relevance.kind=labels",
        "normalize=true",
        "cached_augmentations=0",
        "miner=none",
        "batch_size=8",
        "epochs=1",
        "lr=0.1",
        "validation_fraction=0.5",
        "transform=small" if backbone == "small_conv" else "transform=base",
    ]
    config = configs.make_resolved(configs.override({}, [*values, *words]))
    run = RunFolder(folder)
    run.write_text("config.toml", config.to_toml())
    run.write_tensors("weights.safetensors", build.network(config).state_dict())
    return Trained.open(folder)


def real_images(count: int = 3) -> list[Image.Image]:
    """Photographs would be better; shapes and slopes have edges and colours too."""
    made = []
    for seed in range(count):
        generator = np.random.default_rng(seed)
        image = Image.new("RGB", (90, 70), tuple(generator.integers(0, 255, 3).tolist()))
        for _ in range(6):
            color = tuple(generator.integers(0, 255, 3).tolist())
            left, top = generator.integers(0, 60, 2).tolist()
            image.paste(color, (left, top, left + 25, top + 15))
        made.append(image)
    return made


def as_tensors(images: list[Image.Image]) -> torch.Tensor:  # uint8 [N, 3, s, s]
    return torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in images])


@pytest.mark.parametrize(
    "backbone",
    [FAMILIES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])],
)
def test_onnx_says_what_torch_says_and_how_it_wants_its_images(
    tmp_path: Path, backbone: str
) -> None:
    trained = random_run(tmp_path / "run", backbone)
    images = as_input(trained, real_images())
    assert write_onnx(trained, tmp_path / "model.onnx", images) <= 1e-4
    assert [file.name for file in tmp_path.iterdir() if "part" in file.name] == []
    import onnx

    message = {p.key: p.value for p in onnx.load(str(tmp_path / "model.onnx")).metadata_props}
    assert message["model"] == trained.fingerprint
    assert json.loads(message["preprocessing"])["size"] == size_of(backbone)


@pytest.mark.slow
@pytest.mark.parametrize("descriptor", ["stage2", "pooled"])
def test_onnx_of_another_layer(tmp_path: Path, descriptor: str) -> None:
    trained = random_run(tmp_path / "run", "small_conv", f"descriptor={descriptor}")
    assert trained.network.embedding_size != 16
    images = as_input(trained, real_images())
    assert write_onnx(trained, tmp_path / "model.onnx", images) <= 1e-4


@pytest.mark.parametrize(
    "normalized", [("true",), pytest.param(("true", "false"), marks=pytest.mark.slow)], ids=len
)
def test_programs_open_with_torch_alone(normalized: tuple[str, ...], tmp_path: Path) -> None:
    expected = {}
    for normalize in normalized:
        folder = tmp_path / normalize
        trained = random_run(folder, "small_conv", f"normalize={normalize}")
        images = as_input(trained, real_images())
        assert write_program(trained, folder / "model.pt2", images) <= 1e-4
        np.save(folder / "images.npy", images.numpy())
        with torch.inference_mode():
            expected[folder] = inference(trained)(images)
    script = (
        "import sys, numpy, torch\n"
        "for folder in sys.argv[1:]:\n"
        "    program = torch.export.load(folder + '/model.pt2').module()\n"
        "    images = torch.from_numpy(numpy.load(folder + '/images.npy'))\n"
        "    numpy.save(folder + '/vectors.npy', program(images).detach().numpy())\n"
        "assert not any(name.startswith('unseen') for name in sys.modules)\n"
    )
    words = [sys.executable, "-c", script, *map(str, expected)]
    subprocess.run(words, check=True, cwd=tmp_path)
    for folder, vectors in expected.items():
        np.testing.assert_allclose(np.load(folder / "vectors.npy"), vectors, atol=1e-5)


def test_the_input_is_what_evaluation_sees(tmp_path: Path) -> None:
    trained = random_run(tmp_path / "run", "efficientnet_lite0")
    images = real_images()
    with torch.inference_mode():
        made = inference(trained)(as_input(trained, images))
    torch.testing.assert_close(made, trained.embed(images), atol=1e-4, rtol=1e-3)
    message = describe(trained)
    assert message["resize"] == "short side"
    assert message["crop"] == "centre 40 x 40"


@pytest.mark.parametrize("words", [[], ["transform=horde"], ["transform=small"]])
@pytest.mark.parametrize("size", [(90, 71), (67, 120), (24, 30)])
def test_the_loader_of_a_bundle_feeds_the_model_as_we_do(
    tmp_path: Path, words: list[str], size: tuple[int, int]
) -> None:
    """Pillow alone: odd sides, where rounding instead of cutting would move the image."""
    trained = random_run(tmp_path / "run", "small_conv", "transform=base", *words)
    image = real_images(1)[0].resize(size)
    image.save(tmp_path / "image.png")
    loaded = load_image(tmp_path / "image.png", describe(trained))
    ours = as_input(trained, [image]).numpy()[0]
    assert loaded.dtype == ours.dtype
    np.testing.assert_allclose(loaded, ours, atol=1e-3)


def test_a_large_jpeg_is_decoded_at_the_scale_that_we_decode_it_at(tmp_path: Path) -> None:
    trained = random_run(tmp_path / "run", "small_conv", "transform=base")
    noise = np.random.default_rng(0).integers(0, 256, (401, 603, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.jpg")
    loaded = load_image(tmp_path / "noise.jpg", describe(trained))
    np.testing.assert_array_equal(loaded, as_input(trained, [tmp_path / "noise.jpg"]).numpy()[0])


@pytest.mark.parametrize("transform", ["base", "horde", "small"])
def test_nearly_flat_images_of_every_mode_agree(tmp_path: Path, transform: str) -> None:
    """Where levels are nearly the same, one that is rounded elsewhere changes the vector."""
    trained = random_run(tmp_path / "run", "small_conv", f"transform={transform}")
    levels = np.random.default_rng(0).normal(128, 0.7, (len(MODES), 1, 40, 40)).round()
    images = torch.from_numpy(levels).expand(-1, 3, -1, -1)
    files = write_files(tmp_path, images)
    loaded = torch.from_numpy(np.stack([load_image(file, describe(trained)) for file in files]))
    with torch.inference_mode():
        vectors = inference(trained)(loaded)
    assert torch.cosine_similarity(vectors, trained.embed(files)).min() >= 0.999


@pytest.mark.parametrize("mode", MODES)
def test_an_opened_image_of_any_mode_is_as_its_file(tmp_path: Path, mode: str) -> None:
    (file,) = write_files(tmp_path, as_tensors(real_images(1)), [mode])
    by_path = np.array(decode(file))
    with Image.open(file) as opened:
        np.testing.assert_array_equal(trained_run.opened(opened).pixels(), by_path)
        np.testing.assert_array_equal(as_image(opened), by_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    folder = tmp_path_factory.mktemp("bundled")
    run, images = random_run(folder / "run", "small_conv", "transform=base"), real_images()
    _, cosine = bundle.write_bundle(run, folder / "bundle", as_input(run, images))
    code = (folder / "bundle/README.md").read_text().split("```python\n")[1].split("```")[0]
    return Bundled(run, folder / "bundle", code, cosine)


def test_the_code_of_a_bundle_agrees_on_files_of_every_mode(made: Bundled, tmp_path: Path) -> None:
    """With the code that its card shows, in a process that never sees this package."""
    assert 0.999 <= made.cosine <= 1.0001
    assert not (made.folder / "__pycache__").exists()
    ending = "import sys\nassert not any(name.startswith('unseen') for name in sys.modules)\n"
    images = as_tensors(real_images())
    assert agreement(made.run, made.folder, f"{made.code}\n{ending}", images) >= 0.999
    with pytest.raises(ValueError, match=r"does not run \(AssertionError\): not kept"):
        agreement(made.run, made.folder, f"import unseen\n{made.code}\n{ending}", images)


def test_the_code_of_a_bundle_runs_where_the_package_is_not_installed(
    made: Bundled, tmp_path: Path
) -> None:
    """An isolated Python whose only packages are the others of this environment."""
    (site := tmp_path / "site").mkdir()
    for entry in Path(np.__file__).parents[1].iterdir():
        if not entry.name.startswith(("unseen", "__editable__")) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    files = write_files(tmp_path, as_tensors(real_images()))
    code = made.code.replace(EXAMPLE, repr([str(file) for file in files]))
    script = f"""import sys
sys.path += [{str(site)!r}, {str(made.folder)!r}]
try:
    import unseen
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the package is there")
{code}
np.save({str(tmp_path / "vectors.npy")!r}, vectors)
"""
    words = [sys.executable, "-I", "-S", "-B", "-c", script]
    ran = subprocess.run(words, cwd=made.folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    vectors = torch.from_numpy(np.load(tmp_path / "vectors.npy"))
    assert torch.cosine_similarity(vectors, made.run.embed(files)).min() >= 0.999


@pytest.mark.parametrize(
    ("careful", "careless"),
    [("as_rgb(image)", 'image.convert("RGB")'), ("upright(opened)", "opened.copy()")],
    ids=["transparency dropped", "left lying on its side"],
)
def test_code_that_decodes_otherwise_is_refused(
    made: Bundled, tmp_path: Path, careful: str, careless: str
) -> None:
    copy = shutil.copytree(made.folder, tmp_path / "copy")
    loader = (copy / "load_image.py").read_text()
    (copy / "load_image.py").write_text(loader.replace(f"= {careful}", f"= {careless}"))
    with pytest.raises(ValueError, match=r"cosine 0\.\d+, 0\.999 is needed: not kept"):
        agreement(made.run, copy, made.code, as_tensors(real_images()))


def test_a_model_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inferring, "TOLERANCE", -1.0)
    trained = random_run(tmp_path / "run", "small_conv")
    with pytest.raises(ValueError, match="differs from PyTorch by"):
        write_program(trained, tmp_path / "model.pt2", as_input(trained, real_images()))
    assert not (tmp_path / "model.pt2").exists()


def test_a_bundle_that_disagrees_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real check, of programs that answer with one vector for every file."""
    trained = random_run(tmp_path / "run", "small_conv", "transform=base")
    monkeypatch.setattr(bundle.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(bundle, "write_program", lambda *words: 0.0)
    monkeypatch.setattr(
        bundle, "_code", lambda has_onnx: "import numpy as np\nvectors = np.ones((8, 16))"
    )
    with pytest.raises(ValueError, match="is needed: not kept"):
        bundle.write_bundle(trained, tmp_path / "bundle", as_input(trained, real_images()))
    assert not (tmp_path / "bundle").exists()


def test_a_bundle_opens_without_our_code(tmp_path: Path) -> None:
    trained = random_run(tmp_path / "run", "small_conv", "transform=base")
    score = {"value": 0.5, "low": 0.4, "high": 0.6}
    split = {"train_classes": 5, "validation_classes": 3, "test_classes": 8}
    scores = {"trained": {"metrics": {"recall@1": score}}}
    trained.folder.write_json("result.json", {"split": split, "scores": scores})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle.importlib.util, "find_spec", lambda name: None)  # without ONNX
        images = as_input(trained, real_images())
        made, _ = bundle.write_bundle(trained, tmp_path / "bundle", images)
    assert set(made) == {"model.pt2"}
    sums = (tmp_path / "bundle" / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1] for line in sums} >= {"weights.safetensors", "README.md", "config.toml"}
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "evaluated on 8 classes" in card
    assert "| recall@1 | 0.5000 | 0.4000 to 0.6000 |" in card
    assert "Not calibrated" in card
    with pytest.raises(ValueError, match="exists already"):
        bundle.write_bundle(trained, tmp_path / "bundle", images)


def test_names_in_the_card_are_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)> [a](b) `c` | d"
    trained = random_run(tmp_path / name, "small_conv")
    metric = "<script>|recall@1"
    split = {"train_classes": 5, "validation_classes": 3, "test_classes": 8}
    scores = {"trained": {"metrics": {metric: {"value": 0.5}}}}
    trained.folder.write_json("result.json", {"split": split, "scores": scores})
    title, *_ = lines = bundle.card(trained, None, "").splitlines()
    assert "<" not in "".join(line for line in lines if "import" not in line).split("```")[0]
    assert html.unescape(title) == f"# {name}"
    assert not set("<>[]`|") & set(title)
    (row,) = [line for line in lines if "recall@1" in line]
    assert html.unescape(row.split(" | ")[0]) == f"| {metric}"
    assert row.count("|") == 4

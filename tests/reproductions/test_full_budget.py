"""The full budget of every study: its configurations train, and say what they need."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from unseen.config import build, find_data
from unseen.config import schema as configs
from unseen.core.contracts import Batch, Dataset
from unseen.reproductions import source_values
from unseen.reproductions.full_budget import needs
from unseen.reproductions.published_study import find, names
from unseen.reproductions.request import Ask
from unseen.runs.prepare import prepare
from unseen.studies.study_file import Values

KEYS = ("backbone", "network", "pooling", "loss", "miner", "sampler", "regularizers", "ensemble",
        "manifold_mixup", "optimizer", "frozen_bn", "transform")  # fmt: skip
SIZE, BATCH = 32, 40  # 2, 4, 5, 8 and 10 of a class
TRAINED = [name for name in names() if find(name).origin is not None]


def configurations(name: str) -> dict[str, Values]:
    """Those that differ in more than numbers."""
    different: dict[str, Values] = {}
    for plan in find(name).plans(Ask("cub200", "full")):
        for each in plan.configurations():
            key = {key: value for key, value in each.values.items() if key in KEYS}
            different.setdefault(json.dumps(key, sort_keys=True, default=str), each.values)
    return different


@pytest.fixture(scope="module")
def data() -> Dataset:
    table = {"name": "glyphs", "size": SIZE, "max_classes": 60}
    return find_data.open_data(configs.make({"data": table}).data)


def two_steps(values: Values, data: Dataset) -> None:
    small = [f"batch_size={BATCH}", f"image_size={SIZE}", "weights=none", "threads=1",
             "device=cpu", "refit=false"]  # fmt: skip
    narrow = [
        each | ({"dimension": 64} if each["name"] == "horde" else {})
        for each in values.get("regularizers", [])
    ]
    values = values | ({"regularizers": narrow} if narrow else {})
    context = prepare(configs.make(configs.override(values, small)), dataset=data)
    train = context.split.train
    labels = data.labels[train]
    num_classes = int(labels.max()) + 1
    made = build.build(context.config, num_classes, 2)
    sampler = build.sampler(context.config, train, data.labels)
    generator = torch.Generator().manual_seed(0)
    pooled = torch.randn(len(train), 8, generator=generator)
    made.objective.prepare(pooled, torch.from_numpy(labels))
    if build.is_embedded(context.config.sampler.name):
        getattr(sampler, "fill")(pooled)  # noqa: B009
    sampler.set_epoch(0)

    def batches() -> Iterator[Batch]:
        for chosen, _ in zip(sampler, range(2), strict=False):
            images = torch.randn(len(chosen), 3, SIZE, SIZE, generator=generator)
            classes = torch.from_numpy(data.labels[chosen])
            yield Batch(images, classes, torch.as_tensor(chosen))

    before = [each.detach().clone() for each in made.model.parameters() if each.requires_grad]
    steps: list[Any] = []
    made.trainer.epoch(batches(), torch.arange(num_classes), steps.append)
    assert len(steps) == 2
    after = [each for each in made.model.parameters() if each.requires_grad]
    changed = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    # random weights under frozen batch norms may embed everything alike: no tuple moves them
    largest = max(float(each.grad.abs().max()) for each in after if each.grad is not None)
    assert changed or largest < 1e-8
    assert all(math.isfinite(step.terms["total"]) for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TRAINED if name != "rho"])  # whose are losses'
def test_every_configuration_trains_two_steps(
    name: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_values, "has_weights", lambda network: True)  # BN-Inception too
    for values in configurations(name).values():
        two_steps(values, data)


def test_mixup_trains_two_steps(data: Dataset) -> None:
    mixed = [v for v in configurations("mixup").values() if v.get("manifold_mixup")]
    two_steps(mixed[0], data)


def test_what_a_study_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """ResNet-50: 4.1 G multiplications and additions at 224 pixels, 23.5 M weights without its
    classifier."""
    (line,) = needs(find("mixup"), Ask("cub200", "full"))
    head = "mixup: cub200 (5,864 training images), 30 runs, "
    assert line.startswith(head)
    memory, hours = line.removeprefix(head).split(" GB, about ")
    steps = 5864 // 112
    seconds = 30 * 150 * steps * 112 * 3 * 2 * 4.09e9 / 1e13
    assert float(hours.removesuffix(" GPU hours")) == pytest.approx(seconds / 3600, abs=1)
    assert 5 < float(memory) < 15

"""Runs with frozen layers: each image goes through them once, whoever asks; nothing is lost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unseen.config import build
from unseen.config import schema as configs
from unseen.models.freezing import FrozenBackbone
from unseen.runs.batch_source import source_of
from unseen.runs.diagnose_run import diagnose
from unseen.runs.prepare import Callbacks, RunContext, computing, prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.training_loop import TrainingLoop
from unseen.training.events import Event, Note
from unseen.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("narrow_network")

TINY = [
    "data.max_classes=16",
    "data.size=16",
    "epochs=2",
    "batch_size=16",
    "embedding_size=16",
    "sampler.steps=3",
    "workers=0",
    "threads=1",
    'metrics=["recall@1"]',
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Activations are the test's own, drawn characters are not."""
    monkeypatch.setattr("unseen.runs.cached_activations.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "activations"


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images went through frozen layers, one entry per pass."""
    counts: list[int] = []
    forward = FrozenBackbone.forward

    def counted(self: FrozenBackbone, images: torch.Tensor) -> torch.Tensor:
        counts.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(FrozenBackbone, "forward", counted)
    return counts


def setting_of(*words: str) -> RunContext:
    return prepare(configs.make(configs.override({}, [*TINY, *words])))


def in_blocks(context: RunContext, *parts: Any) -> int:
    """Images of the blocks of 64 in which some items lie."""
    blocks = np.unique(np.concatenate(parts) // 64)
    return sum(min(64, len(context.dataset) - 64 * int(block)) for block in blocks)


PROBES = 8  # images that only tell shapes and times


@pytest.mark.parametrize(
    ("cached_augmentations", "layer", "mirror"),
    [(0, "pooled", "false"), (0, "pooled", "true"), (0, "stage1", "false"), (2, "stage1", "false")],
)
def test_a_image_goes_through_frozen_layers_once(
    cached_augmentations: int, layer: str, mirror: str, tmp_path: Path, passed: list[int]
) -> None:
    words = (
        f"freeze_until={layer}",
        f"cached_augmentations={cached_augmentations}",
        "epochs=3",
    )
    words += (f"mirror={mirror}",)
    context = setting_of(*words)
    split, whole = context.split, len(context.dataset)
    first = train_and_evaluate(context, tmp_path / "one", "test")
    expected = cached_augmentations * in_blocks(context, split.train)
    kept = (split.train,) if cached_augmentations == 0 else ()
    expected += in_blocks(context, *kept, split.validation, split.test)
    assert expected <= sum(n for n in passed if n > PROBES) <= expected + whole
    passed.clear()
    assert train_and_evaluate(context, tmp_path / "two", "test") == first
    assert not [n for n in passed if n > PROBES]


def test_another_seed_loss_or_head_shares_the_activations(
    tmp_path: Path, passed: list[int], cache: Path
) -> None:
    train_and_evaluate(setting_of("freeze_until=pooled"), tmp_path / "one", "test")
    files = sorted(cache.iterdir())
    whole = len(setting_of().dataset)
    assert sum(n for n in passed if n > PROBES) <= whole
    passed.clear()
    other = setting_of("freeze_until=pooled", "loss=margin", "head.hidden=[8]", "lr=0.01")
    train_and_evaluate(other, tmp_path / "two", "test")
    assert not [n for n in passed if n > PROBES]
    assert sorted(cache.iterdir()) == files


def test_a_diagnosis_takes_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, folder = setting_of("freeze_until=pooled"), RunFolder(tmp_path / "run")
    result = train_and_evaluate(context, folder.path, "test")
    monkeypatch.setattr(RunContext, "embed", lambda *_: pytest.fail("images were read again"))
    matches = diagnose(context, folder, Callbacks())["numbers"]["test"]["recall@1"]
    assert matches == pytest.approx(result.scores["trained"].metrics["recall@1"].value)


def test_frozen_layers_stay_and_the_others_move(tmp_path: Path) -> None:
    context = setting_of("freeze_until=stage1", "cached_augmentations=1")
    with computing(context):
        fit = TrainingLoop(context, RunFolder(tmp_path), Callbacks())
        before = {name: value.clone() for name, value in fit.network.state_dict().items()}
        fit.run()
    body = "backbone.body."
    moved = {n for n, v in fit.network.state_dict().items() if not torch.equal(v, before[n])}
    assert not {name for name in moved if name.startswith((f"{body}stem", f"{body}stage1"))}
    assert any(name.startswith(f"{body}stage2") for name in moved)
    assert any(name.startswith("head.") for name in moved)


def test_maps_reach_the_trained_layers_with_channels_last(tmp_path: Path) -> None:
    context = setting_of("freeze_until=stage1", "cached_augmentations=1", "epochs=1")
    with computing(context):
        fit = TrainingLoop(context, RunFolder(tmp_path), Callbacks())
        seen: list[bool] = []

        def look(module: nn.Module, inputs: Any) -> None:
            seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))

        for module in fit.network.modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_pre_hook(look)
        fit.run()
    assert seen
    assert all(seen)


def test_the_plan_is_reported_before_anything_is_computed(tmp_path: Path) -> None:
    message: list[str] = []
    context = setting_of("freeze_until=pooled")

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            message.append(event.text)

    def progress(what: str, done: int, total: int) -> None:
        if what == "through the frozen layers":
            assert message
            message.append(f"{done}/{total}")

    train_and_evaluate(context, tmp_path, "test", Callbacks([listen], progress))
    assert message[0].startswith("0 of ")
    assert any("/" in line for line in message[1:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("freeze_until=stage9",), "no layer named 'stage9': did you mean stage"),
        (("freeze_until=stage1.refine",), "cannot freeze until stage1.refine"),
        (
            ("freeze_until=pooled", 'regularizers=[{name="horde", dimension=8}]'),
            "regularizer horde acts on the last map, and with freeze_until = pooled nothing",
        ),
        (
            ("backbone=timm:test_resnet", "weights=none", "image_size=32", "descriptor=fc"),
            "layers that do not run in a forward pass: fc",
        ),
    ],
)
def test_what_cannot_work_stops_at_construction(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train_and_evaluate(setting_of(*words), tmp_path / "run", "test")
    assert not (tmp_path / "run").exists()


def test_regularizers_behind_the_cut_train(tmp_path: Path) -> None:
    words = (
        'regularizers=["density", {name="horde", dimension=16, num_orders=2}]',
        "cached_augmentations=1",
    )
    context = setting_of("freeze_until=stage1", "epochs=1", *words)
    train_and_evaluate(context, tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


@pytest.mark.parametrize(
    ("backbone", "layer", "descriptor"),
    [
        ("timm:test_resnet", "layer3", "layer4"),
        ("timm:vit_tiny_patch16_224", "blocks.9", "pooled"),
        ("timm:test_efficientnet", "blocks.3", "blocks.1"),
    ],
    ids=["behind the freeze point", "tokens", "before it"],
)
def test_networks_of_timm_train_behind_a_cut(
    backbone: str, layer: str, descriptor: str, tmp_path: Path
) -> None:
    """A descriptor behind the cut is read from kept activations, one before it from images."""
    words = (f"backbone={backbone}", f"freeze_until={layer}", f"descriptor={descriptor}")
    more = (
        "image_size=32",
        "weights=none",
        "cached_augmentations=1",
        "epochs=1",
        "sampler.steps=1",
    )
    context = setting_of(*words, *more, "data.max_classes=10", "batch_size=8")
    train_and_evaluate(context, tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


ENSEMBLE = [
    "backbone=timm:resnet18",
    "image_size=32",
    "ensemble.num_heads=4",
    "ensemble.masks_at=layer3.0",
    "ensemble.trunk_until=layer3.1",
    "frozen_bn=stats",
    "data.max_classes=10",
    "batch_size=8",
    "epochs=1",
    "sampler.steps=1",
]


@pytest.mark.parametrize("frozen", ["none", pytest.param("layer2", marks=pytest.mark.slow)])
def test_an_ensemble_trains_with_its_divergence(frozen: str, tmp_path: Path) -> None:
    words = (f"freeze_until={frozen}", "loss=contrastive", "loss.preset=horde")
    context = setting_of(*ENSEMBLE, *words, "regularizers=head_divergence")
    train_and_evaluate(context, tmp_path, "test")
    assert '"head_divergence"' in (tmp_path / "events.jsonl").read_text()


def test_an_ensemble_is_not_cut_behind_its_masks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot freeze until layer4: the masks of the ensemble"):
        train_and_evaluate(setting_of(*ENSEMBLE, "freeze_until=layer4"), tmp_path, "test")


@pytest.mark.parametrize("name", ["net_b", "net_d"])
def test_a_published_network_trains(name: str, tmp_path: Path) -> None:
    words = [word for word in TINY if not word.startswith("embedding_size")]
    words += [f"network={name}", "epochs=1", "sampler.steps=1"]
    train_and_evaluate(prepare(configs.make(configs.override({}, words))), tmp_path, "test")
    assert RunFolder(tmp_path).is_finished


def test_images_grow_over_the_epochs_and_are_evaluated_at_their_own_size() -> None:
    context = setting_of("epochs=4", "training_sizes=[8,12]", "freeze_until=none")
    source = source_of(context, build.network(context.config), Callbacks())
    sampler = build.sampler(context.config, context.split.train, context.dataset.labels)
    sides = [next(source.loader.training_batches(sampler, e, 0)).images.shape[-1] for e in range(4)]
    assert sides == [8, 8, 12, 12]
    assert next(context.batches(source.transform, context.split.test[:4])).images.shape[-1] == 16


def test_sizes_that_grow_and_kept_activations_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="freeze_until and training_sizes exclude each other"):
        setting_of("training_sizes=[8]", "freeze_until=blocks.1")
    context = setting_of("training_sizes=[16]", "backbone=timm:vit_tiny_patch16_224")
    with pytest.raises(ValueError, match="leave training_sizes out"):
        source_of(context, build.network(context.config), Callbacks())

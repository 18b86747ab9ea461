"""Automatic choices: the miner a source paired with its loss, batches that fit the sampler."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.stages import stage_config
from unseen.config.tables import Component
from unseen.core.reason import Reason


class Tiny:
    """Enough of a data set to resolve a config."""

    official_test_classes = None

    def __init__(self) -> None:
        self.labels = np.repeat(np.arange(60), 12)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (40, 48))


def resolved_with_reasons(*words: str) -> tuple[configs.Config, list[Reason]]:
    dataset: Any = Tiny()
    return resolve(configs.make(configs.override({}, list(words))), dataset)


def resolved(*words: str) -> configs.Config:
    return resolved_with_reasons(*words)[0]


@pytest.mark.parametrize(
    ("loss", "preset", "miner"),
    [
        ("margin", "revisit", Component(name="distance_weighted", preset="revisit")),
        ("margin", "revisit_code", Component(name="distance_weighted", preset="revisit_code")),
        ("triplet", "revisit", Component(name="distance_weighted", preset="revisit")),
        ("triplet", "thesis", Component(name="semi_hard", preset="thesis")),
        ("triplet", "thesis_code", Component(name="semi_hard", preset="thesis_code")),
        ("triplet", "density", None),
        ("triplet", "horde", None),
        ("contrastive", "revisit", Component(name="distance_weighted", preset="revisit")),
        ("contrastive", "thesis", None),
        ("contrastive", "thesis_code", None),
        ("contrastive", "density", None),
        ("contrastive", "horde", None),
        (
            "multi_similarity",
            "thesis_code",
            Component(name="multi_similarity", preset="thesis_code"),
        ),
        ("multi_similarity", "horde", None),
        ("n_pair", "density", Component(name="n_pair", preset="density")),
        ("n_pair", "horde", None),
        ("lifted_structure", "thesis", Component(name="multi_similarity", preset="thesis")),
        ("lifted_structure", "thesis_code", Component(name="multi_similarity", preset="thesis")),
    ],
)
def test_a_preset_brings_the_miner_of_its_source(
    loss: str, preset: str, miner: Component | None
) -> None:
    assert resolved(f"loss={loss}", f"loss.preset={preset}").miner == miner


@pytest.mark.parametrize(
    ("words", "weight"),
    [
        ('{name="density"}', 10.0),
        ('{name="embedding_norm"}', 0.005),
        ('{name="embedding_norm", preset="thesis"}', 0.02),
        ('{name="entropy"}', 1.0),
        ('{name="density", weight=3.0}', 3.0),
    ],
)
def test_a_regularizer_weighs_what_its_source_says(words: str, weight: float) -> None:
    (part,) = resolved(f"regularizers=[{words}]").regularizers
    assert part.weight == weight


ENSEMBLE = (
    "ensemble.num_heads=4",
    "ensemble.masks_at=stage2.reduce",
    "ensemble.trunk_until=stage2.reduce_norm",
)


@pytest.mark.parametrize(
    ("words", "weight"),
    [
        ('{name="horde"}', 1 / 4),
        ('{name="horde", preset="horde_products"}', 1 / 3),
        ('{name="horde", num_orders=3}', 1 / 2),
        ('{name="horde", weight=1.0}', 1.0),
        ('{name="head_divergence"}', 0.5),
    ],
)
def test_in_an_ensemble_the_orders_share_one_weight(words: str, weight: float) -> None:
    (part,) = resolved(*ENSEMBLE, f"regularizers=[{words}]").regularizers
    assert part.weight == weight


@pytest.mark.parametrize(("given", "channels"), [("", 256), (", reduce=100", 100)])
def test_in_an_ensemble_horde_sees_all_maps_reduced_to_the_channels_of_one(
    given: str, channels: int
) -> None:
    words = f'regularizers=[{{name="horde", num_orders=3, dimension=8{given}}}]'
    config = resolved(*ENSEMBLE, "embedding_size=128", words)
    horde: Any = build.objective(config, 5, build.network(config)).regularizers["horde"]
    assert horde.moments.reduction.shape == (4 * 256, channels)
    assert horde.moments.projectors.shape == (3, channels, 8)
    assert horde.embeddings.shape == (2, 8, 128), "an order is as large as the whole embedding"


def test_values_reach_the_usual_miner() -> None:
    miner = resolved("loss=margin", "miner.switch=0.35").miner
    assert miner == Component(name="distance_weighted", switch=0.35)
    with pytest.raises(ValueError, match=r"supcon has no usual miner: miner\.switch needs"):
        resolved("loss=supcon", "miner.switch=0.35")


@pytest.mark.parametrize("preset", ["revisit", "thesis", "density", "horde", "vo_hays"])
def test_batches_fit_the_samplers_preset(preset: str) -> None:
    config = resolved(f"sampler.preset={preset}")
    dataset: Any = Tiny()
    items = np.arange(400)
    sampler = build.sampler(config, items, dataset.labels)
    assert all(len(batch) == config.training.batch_size for batch in sampler)


@pytest.mark.parametrize(
    ("words", "normalize"),
    [
        (("loss=multi_similarity",), True),
        (("loss=generalized_lifted",), False),
        (("loss=angular",), False),
        (("loss=angular", "loss.n_pair=false"), True),
        (("loss=n_pair",), False),
        (("loss=n_pair", "loss.preset=revisit"), False),
        (("loss=n_pair", "loss.preset=thesis"), True),
        (("loss=n_pair", "loss.preset=thesis", "loss.normalize=false"), False),
        (("loss=n_pair", "normalize=true"), True),
        (("loss=n_pair", "descriptor=pooled"), True),
        (("loss=margin", "normalize=false"), False),
        (("loss=snr", "loss.normalize=false"), False),
    ],
)
def test_embeddings_are_evaluated_by_the_distance_the_loss_trains(
    words: tuple[str, ...], normalize: bool
) -> None:
    state = torch.get_rng_state()
    config, reasons = resolved_with_reasons(*words)
    assert config.evaluation.normalize is normalize
    assert any(reason.key == "normalize" for reason in reasons) == (
        not normalize and "normalize=false" not in words
    )
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("words", "learns"),
    [
        (("loss=proxy_anchor",), True),
        (("loss=proxy_anchor", "loss.lr=0.1"), False),
        (("loss=softmax",), False),  # learns as the network
        (("loss=smooth_triplet",), False),  # its scale is fixed
        (("loss=smooth_triplet", "loss.learn_scale=true"), True),
        (("loss=margin", "loss.preset=revisit"), True),
    ],
)
def test_the_rate_of_the_losss_parameters_has_a_reason(
    words: tuple[str, ...], learns: bool
) -> None:
    _, reasons = resolved_with_reasons(*words)
    assert any(reason.key == "loss.lr" for reason in reasons) == learns


def test_nothing_is_left_automatic() -> None:
    assert "auto" not in configs.Config.model_dump_json(resolved())


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (("backbone=resnet50", "transform=base"), 224),
        (("backbone=resnet50", "transform=big"), 256),
        (("backbone=resnet50", "transform=horde"), 256),
        (("backbone=resnet50", "transform=revisit"), 224),
        (("backbone=resnet50", "transform=big", "image_size=128"), 128),
        (("transform=vo_hays",), 40),
        ((), 40),
    ],
)
def test_images_have_the_size_of_network_and_transform(words: tuple[str, ...], size: int) -> None:
    assert resolved(*words).data.image_size == size


def test_an_unknown_transform_is_named_before_any_data_are_read() -> None:
    with pytest.raises(ValueError, match="transform must be one of adv, base"):
        configs.make({"transform": "bsae"})


class Photographs(Tiny):
    """Images too large to be small."""

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (300, 200))


def of_photographs(*words: str) -> tuple[configs.ResolvedConfig, list[Reason]]:
    dataset: Any = Photographs()
    return resolve(configs.make(configs.override({}, list(words))), dataset)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the weights of EfficientNet-Lite0 were, or were not, installed."""
    monkeypatch.setattr(
        "unseen.config.resolve.has_weights", lambda name: name == "efficientnet_lite0"
    )


@pytest.mark.usefixtures("installed")
def test_photographs_train_a_head_on_a_network_that_knows_them() -> None:
    config, reasons = of_photographs()
    chosen = (
        config.model.backbone,
        config.model.weights,
        config.model.frozen.freeze_until,
        config.model.frozen.cached_augmentations,
    )
    assert chosen == ("efficientnet_lite0", "imagenet", "pooled", 0)
    assert (config.model.pooling, config.model.embedding_size, config.data.image_size) == (
        "avg+max",
        512,
        224,
    )
    assert (config.optimizer.lr, config.training.batch_size) == (1e-4, 84)
    assert config.model.head.start == "principal"
    values = {reason.key: reason.value for reason in reasons}
    assert (values["freeze_until"], values["head.start"]) == ("pooled", "principal")
    assert resolve(config, Photographs())[0] == config, "resolved once is resolved"  # type: ignore[arg-type]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "words",
    [
        ("manifold_mixup=true",),
        ("regularizers=horde",),
        ("freeze_until=none",),
        ("network=net_d",),
        ("weights=none",),
    ],
)
def test_what_needs_the_layers_leaves_them_trainable(words: tuple[str, ...]) -> None:
    config, _ = of_photographs(*words)
    assert (config.model.backbone, config.model.frozen.freeze_until) == ("efficientnet_lite0", None)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "words", [("head.start=default",), ("head.hidden=[512]",), ("embedding_size=2000",)]
)
def test_a_head_that_was_chosen_stays_as_it_is(words: tuple[str, ...]) -> None:
    assert of_photographs(*words)[0].model.head.start == "default"


@pytest.mark.usefixtures("installed")
def test_another_backbone_is_trained_as_a_whole() -> None:
    config, _ = of_photographs("backbone=resnet50", "weights=imagenet")
    assert (config.model.weights, config.model.frozen.freeze_until, config.model.pooling) == (
        "imagenet",
        None,
        "own",
    )
    config, _ = of_photographs("backbone=timm:test_resnet", "freeze_until=layer3")
    assert (config.model.weights, config.model.frozen.cached_augmentations) == (None, 4)
    with pytest.raises(ValueError, match="cached_augmentations needs freeze_until") as caught:
        of_photographs("backbone=timm:test_resnet", "cached_augmentations=2")
    assert "\n" not in str(caught.value)


def test_without_the_weights_one_line_of_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.config.resolve.has_weights", lambda name: False)
    config, reasons = of_photographs()
    assert (config.model.backbone, config.model.frozen.freeze_until) == ("small_conv", None)
    (message,) = [str(reason) for reason in reasons if "pip install" in reason.why]
    assert message.startswith("backbone = small_conv")


def test_small_images_keep_the_small_network() -> None:
    config = resolved()
    chosen = (
        config.model.backbone,
        config.model.weights,
        config.model.frozen.freeze_until,
        config.model.frozen.cached_augmentations,
    )
    assert chosen == ("small_conv", None, None, 0)
    assert (config.model.pooling, config.model.embedding_size) == ("own", 128)


@pytest.mark.parametrize(("name", "size"), [("net_a", 512), ("net_d", 256), ("net_f", 512)])
def test_presets_say_their_size_and_pooling(name: str, size: int) -> None:
    config = resolved(f"network={name}")
    assert (config.model.pooling, config.model.embedding_size) == (None, size)
    net = build.network(config)
    assert net.embedding_size == size
    with pytest.raises(ValueError, match=f"has embedding_size {size}, got 7"):
        resolved(f"network={name}", "embedding_size=7")


def test_head_options_reach_the_head() -> None:
    net = build.network(resolved("head.hidden=[16]", "head.bias=false", "head.dropout=0.5"))
    names = [name for name, _ in net.head.named_parameters()]
    assert names == ["fc1.weight", "fc2.weight"]
    assert net.head.get_submodule("dropout").p == 0.5


@pytest.mark.usefixtures("installed")
def test_a_depth_is_reached_in_stages_from_the_head() -> None:
    photographs: Any = Photographs()
    config, reasons = of_photographs("depth=full", "lr=3e-4")
    assert (config.model.frozen.freeze_until, config.training.depth) == ("pooled", "full")
    last, whole = (stage_config(config, name) for name in ("last_layers", "full"))
    assert (last.model.frozen.freeze_until, last.training.depth, last.loss.name) == (
        "blocks.4",
        "last_layers",
        "proxy_anchor",
    )
    assert (
        whole.model.frozen.freeze_until,
        whole.training.depth,
        whole.model.frozen.frozen_bn,
    ) == (None, "full", "full")
    assert last.optimizer.lr == whole.optimizer.lr == 3e-4  # what is given holds on every stage
    proxies = stage_config(config, "proxies")  # the same loss, for the next ones to begin with
    assert (proxies.training.depth, proxies.loss, proxies.miner) == ("head", last.loss, None)
    assert len(of_photographs("depth=full", "epochs=1")[0].training.stages) == 3
    stages = [reason.why.split(" trains")[0] for reason in reasons if reason.key == "stages"]
    assert stages == ["proxies", "last_layers", "full"]
    assert resolve(config, photographs)[0] == config
    for name in ("head", "last_layers", "full"):  # a run is reopened with its kept stage
        kept = stage_config(config, name)
        assert (resolve(kept, photographs)[0], kept.training.depth) == (kept, name)
    for word, name in (("loss=margin", "margin"), ("memory.size=64", "multi_similarity")):
        given, _ = of_photographs("depth=last_layers", word)
        assert [stage_config(given, r.name).loss.name for r in given.training.stages] == [name]
    mirrored, _ = of_photographs("depth=full", "mirror=true")  # activations of pairs are not kept
    assert [stage_config(mirrored, r.name).model.mirror for r in mirrored.training.stages[1:]] == [
        False,
        "evaluation",
    ]
    assert of_photographs("depth=head")[0] == of_photographs()[0]


@pytest.mark.usefixtures("installed")
def test_a_depth_that_stages_cannot_reach_is_an_error() -> None:
    for words in (("depth=full", "freeze_until=pooled"), ("depth=last_layers", "weights=none")):
        with pytest.raises(ValueError, match="does not go with freeze_until"):
            of_photographs(*words)
    for word in ("select=test", "monitor=test"):
        with pytest.raises(ValueError, match="needs select and monitor = validation"):
            of_photographs('stages=[{name="a"}]', word)
    with pytest.raises(ValueError, match="unknown key of the stage a 'seed'"):
        of_photographs('stages=[{name="a", seed=1}]')
    with pytest.raises(ValueError, match="stages need names of their own"):
        of_photographs('stages=[{name="head"}]')

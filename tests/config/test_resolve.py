"""Automatic choices: what is named as auto would have chosen it changes nothing else."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.protocols.half_split import HalfSplit, enough_fraction, num_aside

AUTO_MINER = {"name": "auto", "preset": None}
AUTOMATIC = [key for key, value in Config().flat().items() if value in ("auto", AUTO_MINER)]


class ImageBatches:
    """Images of a size, four of each class."""

    name = "images"
    official_test_classes = None

    def __init__(self, classes: int = 60, side: int = 200) -> None:
        self.labels = np.repeat(np.arange(classes), 4)
        self.side = side

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (self.side, self.side))


class Features(ImageBatches):
    """Ready descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.features = np.zeros((len(self.labels), 600), dtype=np.float32)


def resolved(dataset: Any, values: dict[str, Any]) -> Config:
    return resolve(configs.make(values), dataset)[0]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the weights of EfficientNet-Lite were installed, and no others."""
    monkeypatch.setattr("unseen.config.resolve.has_weights", lambda name: "lite" in name)


def test_every_automatic_key_is_known_here() -> None:
    assert {"backbone", "weights", "lr", "miner", "validation_fraction"} <= set(AUTOMATIC)
    assert len(AUTOMATIC) >= 15


@pytest.mark.parametrize(
    "dataset", [ImageBatches(), ImageBatches(side=40), ImageBatches(9), Features()]
)
@pytest.mark.parametrize("given", [{}, {"freeze_until": None}, {"loss": "margin"}])
def test_a_value_named_as_auto_would_have_chosen_it_changes_nothing(
    dataset: Any, given: dict[str, Any]
) -> None:
    chosen = resolved(dataset, given)
    values = chosen.flat()
    for key in AUTOMATIC:
        assert resolved(dataset, given | {key: values[key]}) == chosen, key
    draw = np.random.default_rng(0)
    for _ in range(10):
        some = draw.permutation(AUTOMATIC)[: draw.integers(2, len(AUTOMATIC))]
        named = {str(key): values[str(key)] for key in some}
        assert resolved(dataset, given | named) == chosen, sorted(named)
    start = configs.put(given, "head.start", values["head"]["start"])
    assert resolved(dataset, start) == chosen


@pytest.mark.parametrize(
    ("classes", "count"),
    [(4, 2), (8, 2), (9, 3), (12, 4), (24, 8), (40, 8), (53, 8), (60, 9), (100, 15), (215, 32)],
)
@pytest.mark.parametrize("protocol", ["half_split", "fixed_validation"])
def test_few_training_classes_give_more_of_them_to_select_on(
    classes: int, count: int, protocol: str
) -> None:
    dataset: Any = ImageBatches(2 * classes, side=40)
    config = resolved(dataset, {"protocol": protocol})
    assert isinstance(config.evaluation.protocol.validation_fraction, float)
    (split,) = HalfSplit(config.evaluation.protocol.validation_fraction)(dataset, seed=3)
    fraction = 0.15 if protocol == "half_split" else 0.1
    wanted = max(2, round(fraction * classes), min(8, classes // 3))
    assert len(np.unique(dataset.labels[split.validation])) == wanted
    if protocol == "half_split":
        assert wanted == count
    if classes >= 100:
        assert config.evaluation.protocol.validation_fraction == fraction, (
            "the source's rule where it gives enough"
        )


def test_the_resolved_fraction_gives_its_number_back() -> None:
    for classes in range(4, 500):
        wanted = max(2, round(0.15 * classes), min(8, classes // 3))
        assert num_aside(enough_fraction(0.15, classes), classes) == wanted


def test_batches_have_no_more_classes_than_are_trained_on() -> None:
    for classes in range(8, 120, 3):
        dataset: Any = ImageBatches(classes, side=40)
        config = resolved(dataset, {})
        (split,) = HalfSplit(config.evaluation.protocol.validation_fraction)(dataset, seed=0)  # type: ignore[arg-type]
        assert config.training.batch_size <= 4 * len(np.unique(dataset.labels[split.train]))  # type: ignore[operator]


@pytest.mark.parametrize(
    "values",
    [
        {"backbone": "efficientnet_lite1"},
        {"backbone": "efficientnet_lite0", "freeze_until": "blocks.4"},
        {"freeze_until": None},
        {"backbone": "resnet50", "weights": "some/file.pth"},
    ],
)
def test_pretrained_layers_are_not_trained_at_the_rate_of_new_ones(values: dict[str, Any]) -> None:
    config, reasons = resolve(configs.make(values), ImageBatches())  # type: ignore[arg-type]
    assert config.optimizer.lr == 1e-4
    assert any(str(reason).startswith("lr = 0.0001: pretrained layers") for reason in reasons)
    assert resolved(ImageBatches(), {"backbone": "resnet50"}).optimizer.lr == 1e-3


def test_adapters_learn_beside_layers_that_stay_as_they_are() -> None:
    chosen = resolved(ImageBatches(), {"adapter": "lora"})
    assert (chosen.optimizer.lr, chosen.model.frozen.freeze_until, chosen.model.head.start) == (
        1e-3,
        None,
        "principal",
    )


def test_a_network_without_weights_says_that_it_starts_from_random_ones() -> None:
    _, reasons = resolve(configs.make({"backbone": "resnet50"}), ImageBatches())  # type: ignore[arg-type]
    (reason,) = [reason for reason in reasons if reason.key == "weights"]
    assert str(reason).startswith("weights = none: resnet50 starts from random ones")

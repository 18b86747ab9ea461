"""What each source trains with, as values of a config, and where our runs have something else.

    set_up(ROTH, "cub200", OF_NETWORK)    the values that a plan on features takes over
    differing(ROTH, "cub200", resolved)    ["epochs: 8; the source has 150.", ...]

The same tables make the plans and evaluate them: a difference is read off the resolved configs of
finished runs (or off a plan), never written down. What a source does not say is left out.

ROTH      K. Roth et al. 2020, supplement A: Adam at a constant 1e-5, decay 4e-4, SPC-2, batches of
          112, 150 epochs (SOP 100) of the whole ResNet-50; the epoch chosen on test classes
PSOMAS    B. Psomas' thesis: AdamW 1e-4 (SOP 6e-4), decay 1e-4, steps, 100 epochs, 5 of a class in
          batches of 100; its steps and batches for other networks: `psomas/thesis.py`
LI        X. Li et al., density adaptivity: Adam, 128-d, 10 of a class in batches of 100; 30,000
          steps (here 100 epochs of 300), no decay named
JACOB     P. Jacob et al. 2019: Adam at a constant 1e-5, 8 of a class in batches of 40 (SOP, In-Shop
          2 in 80), 512-d; 40 epochs of 200 steps
VO_HAYS   N. Vo, J. Hays 2019: SGD 0.01 in steps, decay 5e-4, 2 of a class in batches of 32; 20,000
          steps (SOP 200,000), here in epochs of 100; convolutions wait for the first 100
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unseen.config import schema as configs
from unseen.models import bn_inception
from unseen.models.backbone import create_backbone, has_weights
from unseen.samplers.m_per_class import MPerClassSampler
from unseen.studies.study_file import Plan, Values
from unseen.studies.what_was_trained import plain_value

THREE = ("cub200", "cars196", "online_products")  # data sets that most sources have tables of
IN_SHOP = "inshop"


class Each(dict[str, Any]):
    """A value for each data set of a source; the first one where it has none."""

    def of(self, data: str) -> Any:
        return self.get(data, next(iter(self.values())))


def _spc(preset: str, **values: int) -> Values:
    return {"name": "m_per_class", "preset": preset} | values


def steps(every: int, until: int = 100, gamma: float = 0.1, warm_up: int = 0) -> Values:
    """A rate that falls by gamma after so many epochs, again and again."""
    milestones = list(range(every, until, every))
    return {"name": "step", "milestones": milestones, "gamma": gamma, "warm_up": warm_up}


WHOLE: Values = {"weights": "imagenet", "freeze_until": None}
ROTH = WHOLE | {
    "backbone": "resnet50", "frozen_bn": "stats", "transform": "revisit", "image_size": 224,
    "embedding_size": 128, "head": {"start": "default"}, "sampler": _spc("revisit"),
    "batch_size": 112, "optimizer": {"name": "adam"}, "lr": 1e-5, "weight_decay": 4e-4,
    "schedule": {"name": "constant"}, "select": "test",
    "epochs": Each(cub200=150, cars196=150, online_products=100),
}  # fmt: skip
PSOMAS = WHOLE | {
    "backbone": "resnet50", "transform": "thesis", "image_size": 224, "pooling": "avg+max",
    "frozen_bn": Each(cub200="full", cars196="full", online_products="off"),
    "head": {"start": "kaiming"}, "sampler": _spc("thesis"), "batch_size": 100,
    "optimizer": {"name": "adamw"}, "weight_decay": 1e-4, "epochs": 100, "select": "test",
    "lr": Each(cub200=1e-4, cars196=1e-4, online_products=6e-4),
    "schedule": Each(
        cub200=steps(5, warm_up=5), cars196=steps(10, warm_up=5),
        online_products=steps(10, gamma=0.25, warm_up=5),
    ),
}  # fmt: skip
LI = WHOLE | {
    "backbone": "googlenet", "transform": "density", "image_size": 227, "embedding_size": 128,
    "head": {"start": "default"}, "sampler": _spc("density", steps=300), "batch_size": 100,
    "optimizer": {"name": "adam"}, "lr": Each(cub200=1e-5, cars196=5e-4, online_products=3e-5),
    "weight_decay": 0.0, "schedule": {"name": "constant"}, "epochs": 100,
}  # fmt: skip
JACOB = WHOLE | {
    "backbone": "googlenet", "transform": "horde", "image_size": 256, "pooling": "avg",
    "embedding_size": 512, "head": {"start": "default", "bias": False},
    "sampler": Each(
        cub200=_spc("horde", steps=200), cars196=_spc("horde", steps=200),
        online_products=_spc("horde", steps=200, per_class=2),
        inshop=_spc("horde", steps=200, per_class=2),
    ),
    "batch_size": Each(cub200=40, cars196=40, online_products=80, inshop=80),
    "optimizer": {"name": "adam"}, "lr": 1e-5, "weight_decay": 0.0,
    "schedule": {"name": "constant"}, "epochs": 40,
}  # fmt: skip
VO_HAYS = WHOLE | {
    "backbone": "vgg16_bn", "transform": "vo_hays", "image_size": 224, "embedding_size": 512,
    "sampler": _spc("vo_hays", steps=100), "batch_size": 32,
    "optimizer": {"name": "sgd", "momentum": 0.9}, "lr": 0.01, "weight_decay": 5e-4,
    "schedule": Each(
        cub200=steps(100, 200, warm_up=1), cars196=steps(100, 200, warm_up=1),
        online_products=steps(100, 201, warm_up=1),
    ),
    "epochs": Each(cub200=200, cars196=200, online_products=2000),
}  # fmt: skip
OF_NETWORK = ("backbone", "weights", "freeze_until", "frozen_bn", "transform", "image_size",
              "pooling")  # fmt: skip
OF_LENGTH = ("optimizer", "lr", "weight_decay", "schedule", "epochs", "select")
OF_BATCHES = ("batch_size", "embedding_size")
BN_INCEPTION = "bn_inception"
SHOWN = 4  # values of a key that runs have


def resolved(source: Values, data: str) -> Values:
    """A source's values for one of its data sets."""
    return {k: v.of(data) if isinstance(v, Each) else v for k, v in source.items()}


def set_up(source: Values, data: str, left_out: Sequence[str]) -> Values:
    """The values of a source that a plan takes over; with other epochs, they have other steps."""
    values = {k: v for k, v in resolved(source, data).items() if k not in left_out}
    if "epochs" in left_out and "sampler" in values:
        values["sampler"] = {k: v for k, v in values["sampler"].items() if k != "steps"}
    return values


def available(theirs: Mapping[str, Values]) -> dict[str, Values]:
    """Those of a source's networks whose ImageNet weights can be had: never random ones."""
    return {name: values for name, values in theirs.items() if name not in _missing(theirs)}


def without_weights(theirs: Iterable[str]) -> list[str]:
    """Which of them are left out, and what brings them in."""
    missing = _missing(theirs)
    where = f"{bn_inception.weights_file().name} in the checkpoints of torch's cache brings it in"
    return [f"{name} is left out, its weights are in no package: {where}." for name in missing]


def _missing(theirs: Iterable[str]) -> list[str]:
    """torchvision downloads the weights of the others."""
    return [name for name in theirs if name == BN_INCEPTION and not has_weights(name)]


def check_weights(ours: Iterable[Values]) -> None:
    """ValueError before any run where a network's weights cannot be had."""
    request = {(str(config["backbone"]), config["weights"]) for config in ours}
    for backbone, weights in request:
        if weights not in (None, "auto") and not has_weights(backbone):
            create_backbone(backbone, weights=str(weights))


def planned(plans: Iterable[Plan]) -> list[Values]:
    """The configs of the runs that plans would make, with all that the data resolve open."""
    configurations = [configuration for plan in plans for configuration in plan.configurations()]
    return [configs.make(configuration.values).flat() for configuration in configurations]


def differing(source: Values, data: str, ours: Sequence[Values]) -> list[str]:
    """A line for each key in which no config has the source's value."""
    sentences = []
    for key, theirs in resolved(source, data).items() if ours else ():
        values = [config[key] for config in ours]
        if not any(_is(key, value, theirs) for value in values):
            texts = list(dict.fromkeys(_text(key, value, theirs) for value in values))
            shown = ", ".join(texts[:SHOWN]) + (" ..." if len(texts) > SHOWN else "")
            sentences.append(f"{key}: {shown}; the source has {_text(key, theirs, theirs)}.")
    return sentences


def _is(key: str, ours: Any, theirs: Any) -> bool:
    """Of a part only what the source says of it is compared."""
    if key == "sampler":
        return _text(key, ours, theirs) == _text(key, theirs, theirs)
    if isinstance(theirs, Mapping):
        table = {"name": ours} if isinstance(ours, str) else ours
        return all(table.get(k) == v for k, v in theirs.items())
    return bool(plain_value(ours) == plain_value(theirs))


def _text(key: str, value: Any, theirs: Any) -> str:
    """For people; of a part its name and what the source says of it, of a sampler how many of a
    class it draws."""
    value = plain_value(value)
    if value == "auto":
        return "as the data say"
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, Mapping):
        return str(value)
    if key == "sampler" and value["name"] == "m_per_class":
        usual = {"per_class": 4} | MPerClassSampler.PRESETS.get(value.get("preset") or "", {})
        steps = value.get("steps")
        count = f"{value.get('per_class', usual['per_class'])} of a class"
        return count + (f", {steps} batches an epoch" if steps else "")
    names = [k for k in theirs if k != "name"] if isinstance(theirs, Mapping) else []
    words = [f"{k} {_shortened(value[k])}" for k in names if k in value]
    return " ".join([*([str(value["name"])] if "name" in value else []), *words])


def _shortened(value: Any) -> Any:
    is_long = isinstance(value, list) and len(value) > SHOWN
    return f"[{value[0]}, {value[1]}, ... {value[-1]}]" if is_long else plain_value(value)

"""What each source trains with, as values of a config, and what it leaves to its code or to us.

    set_up(ROTH, "cub200", OF_NETWORK)    the values that a plan on features takes over

The same tables make the plans and evaluate them (`differences.py`): a difference is read off the
resolved configs of finished runs, or off a plan, never written down.

ROTH      K. Roth et al. 2020, supplement A: Adam at a constant 1e-5, decay 4e-4, SPC-2, batches of
          112, 150 epochs (SOP 100) of the whole ResNet-50; the epoch chosen on test classes
PSOMAS    B. Psomas' thesis: AdamW 1e-4 (SOP 6e-4), decay 1e-4, steps, 100 epochs; batches of 100
          (ResNet-50) and 180, 5 of a class for losses on tuples and at random for the others
LI        Y. Li et al., density adaptivity: Adam, 128-d, 10 of a class in batches of 100, on SOP
          whole classes; 30,000 steps (here 100 epochs of 300), no decay named
JACOB     P. Jacob et al. 2019: Adam at a constant 1e-5, 8 of a class in batches of 40 (SOP, In-Shop
          2 in 80), 512-d; 40 epochs of 200 steps
VO_HAYS   N. Vo, J. Hays 2019: SGD 0.01, tenfold lower after half of the steps, decay 5e-4, 2 of a
          class in batches of 32; 20,000 steps (SOP 200,000), here in epochs of 100; convolutions
          wait for the first 100
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unseen.config import schema as configs
from unseen.models import bn_inception
from unseen.models.backbone import create_backbone, has_weights
from unseen.reproductions.numbers import table
from unseen.studies.study_file import Plan, Values

THREE = ("cub200", "cars196", "online_products")  # data sets that most sources have tables of
IN_SHOP = "inshop"


class Each(dict[str, Any]):
    """A value for each data set of a source; the first one where it has none."""

    def of(self, data: str) -> Any:
        return self.get(data, next(iter(self.values())))


@dataclass(frozen=True)
class Override:
    """Values that a source has where a config has others. where: those of the config, by dotted
    keys, each a list."""

    where: Mapping[str, Sequence[Any]]
    values: Values

    def holds(self, config: Mapping[str, Any]) -> bool:
        return all(value_of(config, key) in allowed for key, allowed in self.where.items())


@dataclass(frozen=True)
class Source:
    """What a source trains with.

    Args:
        title: its authors and year.
        preset: of its values in losses, miners, samplers and regularizers.
        values: of a config, for all its runs.
        overrides: for some of them; later ones hold over earlier ones.
        varied: values of methods that it compares beside those of its presets, as METHOD.KEY; none:
            any.
    """

    title: str
    preset: str
    values: Values
    overrides: Sequence[Override] = ()
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def expected(self, config: Mapping[str, Any], data: str) -> Values:
        """The source's values for a run like this one."""
        result = resolved(self.values, data)
        for override in self.overrides:
            if override.holds(config):
                result = result | resolved(override.values, data)
        if config.get("ensemble"):  # it has heads of its own
            result.pop("head", None)
        return result

    def notes_of(self, configs: Sequence[Mapping[str, Any]]) -> list[str]:
        """What the paper leaves open or its code does otherwise, where it touches some run."""
        rows = [row for row in table("notes") if row["of"] == self.title]
        return [str(row["text"]) for row in rows if _is_touched(configs, str(row["when"]))]


def _is_touched(configs: Sequence[Mapping[str, Any]], when: str) -> bool:
    """Whether some run has a value: key=value."""
    key, _, value = when.partition("=")
    return any(f"{value_of(config, key)}" == value for config in configs)


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """By a dotted key, such as `loss.name`; None where there is none."""
    value: Any = config
    for word in key.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value


def _spc(preset: str, **values: int) -> Values:
    return {"name": "m_per_class", "preset": preset} | values


def steps(every: int, until: int = 100, gamma: float = 0.1, warm_up: int = 0) -> Values:
    """A rate that falls by gamma after so many epochs, again and again."""
    milestones = list(range(every, until, every))
    return {"name": "step", "milestones": milestones, "gamma": gamma, "warm_up": warm_up}


WHOLE: Values = {"weights": "imagenet", "freeze_until": None}
ROTH = Source("Roth et al. 2020", "revisit", WHOLE | {
    "backbone": "resnet50", "frozen_bn": "stats", "transform": "revisit", "image_size": 224,
    "embedding_size": 128, "head": {"start": "default"}, "sampler": _spc("revisit"),
    "batch_size": 112, "optimizer": {"name": "adam"}, "lr": 1e-5, "weight_decay": 4e-4,
    "schedule": {"name": "constant"}, "select": "test",
    "epochs": Each(cub200=150, cars196=150, online_products=100),
}, [Override({"loss.name": ["histogram"]}, {"loss": Each(
        cub200={"nodes": 65}, cars196={"nodes": 65}, online_products={"nodes": 11})})],
   {"margin.beta": (0.6,), "distance_weighted.switch": (), "soft_triple.centers": ()})  # fmt: skip
TUPLES = ("contrastive", "triplet", "lifted_structure", "n_pair", "margin", "multi_similarity")
RANDOM: Values = {"name": "random"}
SMALLER: Values = {  # of BN-Inception and GoogLeNet
    "batch_size": 180,
    "schedule": Each(
        cub200=steps(10, warm_up=1), cars196=steps(20, warm_up=1),
        online_products=steps(20, gamma=0.25, warm_up=1),
    ),
}  # fmt: skip
PSOMAS = Source("Psomas 2020", "thesis", WHOLE | {
    "backbone": "resnet50", "transform": "thesis", "image_size": 224, "pooling": "avg+max",
    "frozen_bn": Each(cub200="full", cars196="full", online_products="off"),
    "head": {"start": "kaiming"}, "sampler": _spc("thesis"), "batch_size": 100,
    "optimizer": {"name": "adamw"}, "weight_decay": 1e-4, "epochs": 100, "select": "test",
    "lr": Each(cub200=1e-4, cars196=1e-4, online_products=6e-4),
    "schedule": Each(
        cub200=steps(5, warm_up=5), cars196=steps(10, warm_up=5),
        online_products=steps(10, gamma=0.25, warm_up=5),
    ),
}, [*(Override({"backbone": [network]}, SMALLER | {"backbone": network})
      for network in ("bn_inception", "googlenet")),
    Override({"loss.name": ["proxy_nca", "arcface", "soft_triple", "proxy_anchor",
                           "proxy_repulsion"]}, {"sampler": RANDOM})],
   {"proxy_repulsion.variant": ()})  # fmt: skip
LI = Source("Li et al. 2020", "density", WHOLE | {
    "backbone": "googlenet", "transform": "density", "image_size": 227, "embedding_size": 128,
    "head": {"start": "default"}, "batch_size": 100, "refit": True,
    "sampler": Each(
        cub200=_spc("density", steps=300), cars196=_spc("density", steps=300),
        online_products={"name": "whole_classes", "preset": "density", "steps": 300},
    ),
    "optimizer": {"name": "adam"}, "lr": Each(cub200=1e-5, cars196=5e-4, online_products=3e-5),
    "weight_decay": 0.0, "schedule": {"name": "constant"}, "epochs": 100,
}, varied={"density.lr_factor": (), "density.d0": ("none",)})  # fmt: skip
JACOB = Source("Jacob et al. 2019", "horde", WHOLE | {
    "backbone": "googlenet", "transform": "horde", "image_size": 256, "pooling": "avg",
    "embedding_size": 512, "head": {"start": "default", "bias": False},
    "sampler": Each(
        cub200=_spc("horde", steps=200), cars196=_spc("horde", steps=200),
        online_products=_spc("horde", steps=200, per_class=2),
        inshop=_spc("horde", steps=200, per_class=2),
    ),
    "batch_size": Each(cub200=40, cars196=40, online_products=80, inshop=80),
    "optimizer": {"name": "adam"}, "lr": 1e-5, "weight_decay": 0.0,
    "schedule": {"name": "constant"}, "epochs": 40, "refit": True,
}, [Override({"backbone": ["bn_inception"]}, {"backbone": "bn_inception"})],
   {f"horde.{key}": () for key in ("num_orders", "cascade", "trained", "reduce")})  # fmt: skip
VO_HAYS = Source("Vo and Hays 2019", "vo_hays", WHOLE | {
    "backbone": "vgg16_bn", "transform": "vo_hays", "image_size": 224, "embedding_size": 512,
    "sampler": _spc("vo_hays", steps=100), "batch_size": 32,
    "optimizer": {"name": "sgd", "momentum": 0.9}, "lr": 0.01, "weight_decay": 5e-4,
    "schedule": Each(
        cub200=steps(100, 200, warm_up=1), cars196=steps(100, 200, warm_up=1),
        online_products=steps(1000, 2000, warm_up=1),
    ),
    "epochs": Each(cub200=200, cars196=200, online_products=2000), "refit": True,
})  # fmt: skip
OF_NETWORK = ("backbone", "weights", "freeze_until", "frozen_bn", "transform", "image_size",
              "pooling")  # fmt: skip
OF_LENGTH = ("optimizer", "lr", "weight_decay", "schedule", "epochs", "select", "refit")
OF_BATCHES = ("batch_size", "embedding_size")
BN_INCEPTION = "bn_inception"


def resolved(source: Values, data: str) -> Values:
    """A source's values for one of its data sets."""
    return {k: v.of(data) if isinstance(v, Each) else v for k, v in source.items()}


def set_up(source: Source, data: str, left_out: Sequence[str]) -> Values:
    """The values of a source that a plan takes over; with other epochs, they have other steps."""
    values = {k: v for k, v in resolved(source.values, data).items() if k not in left_out}
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

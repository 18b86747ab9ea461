"""What each source trains with, as values of a config, and what it leaves to its code or to us.

    set_up(ROTH, "cub200", OF_NETWORK)    the values that a plan on features takes over

The same tables make the plans and evaluate them (`differences.py`): a difference is read off the
resolved configs of finished runs, or off a plan, never written down.

The values stand in numbers/sources.toml.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unseen.config import schema as configs
from unseen.models import bn_inception
from unseen.models.backbone import create_backbone, has_weights
from unseen.reproductions.numbers import table, toml
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


def steps(every: int, until: int = 100, gamma: float = 0.1, warm_up: int = 0) -> Values:
    """A rate that falls by gamma after so many epochs, again and again."""
    milestones = list(range(every, until, every))
    return {"name": "step", "milestones": milestones, "gamma": gamma, "warm_up": warm_up}


WHOLE: Values = {"weights": "imagenet", "freeze_until": None}
TUPLES = ("contrastive", "triplet", "lifted_structure", "n_pair", "margin", "multi_similarity")
RANDOM: Values = {"name": "random"}


def _values(stored: Mapping[str, Any]) -> Values:
    """`values` and `by_data` of a part of numbers/sources.toml."""
    by_data = {
        key: Each({data: _expanded(value) for data, value in each.items()})
        for key, each in stored.get("by_data", {}).items()
    }
    return stored.get("values", {}) | by_data


def _expanded(value: Any) -> Any:
    return steps(**value) if isinstance(value, dict) and "every" in value else value


def _source(name: str) -> Source:
    stored = toml("sources")[name]
    overrides = [Override(each["where"], _values(each)) for each in stored.get("overrides", ())]
    values = WHOLE | _values(stored)
    return Source(stored["title"], stored["preset"], values, overrides, stored.get("varied", {}))


ROTH, PSOMAS, LI, JACOB, VO_HAYS = map(_source, ("roth", "psomas", "li", "jacob", "vo_hays"))
SMALLER = PSOMAS.overrides[0].values  # with BN-Inception, and with GoogLeNet
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

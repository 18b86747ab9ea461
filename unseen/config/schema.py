"""The settings of a run, and their way to and from TOML.

A config is frozen and strict: flat values, and one table per component that names a method and its
values,

    [loss]
    name = "margin"
    preset = "revisit"
    beta = 0.6

Overrides are written `lr=0.001 loss=margin loss.beta=0.6 regularizers=[]`. An unknown key or value
names the nearest right one. `"auto"` is resolved by `config/resolve.py`, which says why it chose
what it chose.
"""

import hashlib
import json
import tomllib
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from unseen import models
from unseen.config import toml
from unseen.config.keys import PLAIN, Keys
from unseen.config.tables import (
    ELSEWHERE,
    SUM,
    Adapter,
    Component,
    Depth,
    Ensemble,
    Head,
    LabelFilter,
    LabelNoiseSettings,
    Memory,
    MixupSettings,
    OptimizerSettings,
    RelevanceSettings,
    ScheduleSettings,
    ShiftSettings,
    WeightedComponent,
    as_sum,
)
from unseen.config.toml import NOTHING, dump
from unseen.core import custom_components, registry
from unseen.core.names import known
from unseen.data.images import transforms
from unseen.evaluation import metric_names
from unseen.losses.base import LabelLoss
from unseen.models.backbone import FEATURES, OWN
from unseen.models.layer_outputs import POOLED
from unseen.models.pooling import POOLINGS

load, parse = toml.load, toml.parse  # the values of a file, of a text
OWN_NETWORK = "own"  # the backbone of a network from outside


TABLES: dict[str, type[BaseModel]] = {
    "head": Head,
    "ensemble": Ensemble,
    "adapter": Adapter,
    "optimizer": OptimizerSettings,
    "schedule": ScheduleSettings,
    "memory": Memory,
    "label_filter": LabelFilter,
    "label_noise": LabelNoiseSettings,
    "manifold_mixup": MixupSettings,
    "relevance": RelevanceSettings,
    "shift": ShiftSettings,
}
NAMED = ("loss", "miner", "sampler", "data", "optimizer", "schedule", "adapter", "label_filter")


class Config(Keys):
    """Everything a run depends on. The same config and data give the same result."""

    @field_validator("manifold_mixup", mode="before")
    @classmethod
    def _mixing(cls, value: Any) -> Any:
        """True and None are short for a table of defaults and for none."""
        if value is True:
            return {}
        return False if value is None else value

    @field_validator("network")
    @classmethod
    def _network_of_entry_point(cls, name: str) -> str:
        """The entry point of an installed package stands for where it lies."""
        result = custom_components.entry_points("networks").get(name)
        return name if result is None else result.value

    @model_validator(mode="after")
    def _parts_exist(self) -> "Config":
        parts = [("losses", component) for component in self.losses]
        parts += [("samplers", self.sampler), ("data", self.data)]
        parts += [("regularizers", component) for component in self.regularizers]
        if self.miner is not None and self.miner.name != "auto":
            parts.append(("miners", self.miner))
        for kind, component in parts:
            registry.check(kind, component.name, component.values, component.preset)
        registry.check("protocols", self.protocol, {})
        if self.has_preset_network:
            installed = custom_components.entry_points("networks")
            known(self.network, [PLAIN, *models.PRESETS, *installed], "network")
        known(self.pooling, ["auto", OWN, *POOLINGS], "pooling")
        for metric in self.metrics:
            if not custom_components.is_object(metric):
                metric_names.parse_metric(metric)
        if self.transform not in (None, "auto"):
            transforms.known(self.transform)
        return self

    @model_validator(mode="after")
    def _loss_takes_tuples(self) -> "Config":
        selected = {"miner": self.miner, "memory": self.memory}
        for key, what in (("miner", "tuples"), ("memory", "references")):
            is_selected = selected[key] not in (None, Component(name="auto"))
            if is_selected and all(is_label_loss(component.name) for component in self.losses):
                raise ValueError(
                    f"{self.loss_name} takes no {what}: leave the {key} out, {key}=none"
                )
        return self

    @model_validator(mode="after")
    def _orders_exist(self) -> "Config":
        if self.descriptor == "orders" and "horde" not in [r.name for r in self.regularizers]:
            raise ValueError(
                "descriptor = orders needs the regularizer that makes them: regularizers=horde"
            )
        return self

    @model_validator(mode="after")
    def _network_fits(self) -> "Config":
        special = [f"network = {self.network}"] if self.network != PLAIN else []
        special += ["ensemble"] if self.ensemble is not None else []
        if len(special) > 1:
            raise ValueError(f"{' and '.join(special)} exclude each other: leave one out")
        if self.has_own_network and (self.backbone != "auto" or self.pooling != "auto"):
            is_resolved = self.backbone == OWN_NETWORK or self.backbone.startswith(FEATURES)
            if not is_resolved or self.pooling not in ("auto", OWN):
                raise ValueError(f"{special[0]} is all there is: leave backbone and pooling out")
        if special and self.head != Head():
            raise ValueError(f"{special[0]} has a head of its own: leave head out")
        if self.adapter and (self.ensemble or self.has_preset_network):
            raise ValueError(f"{special[0]} trains layers of its own: leave adapter out")
        if special and self.mirror:
            raise ValueError(f"{special[0]} does not go with mirror = true: leave one of them out")
        if self.has_preset_network and self.pooling not in ("auto", "max"):
            raise ValueError(f"{special[0]} pools by max, got pooling = {self.pooling}")
        if self.freeze_until not in (None, "auto") and self.manifold_mixup:
            raise ValueError(
                "manifold_mixup mixes images and early layers, and freeze_until = "
                f"{self.freeze_until} runs those only once: leave one of them out"
            )
        if self.mirror and self.manifold_mixup:
            raise ValueError("manifold_mixup mixes single images, mirror sees pairs: leave one out")
        if self.training_sizes and self.freeze_until not in (None, "auto"):
            raise ValueError(
                f"training_sizes shows images of several sizes, and freeze_until = "
                f"{self.freeze_until} keeps those of one: leave one of them out"
            )
        if self.freeze_until is None and self.cached_augmentations not in ("auto", 0):
            raise ValueError(
                "cached_augmentations needs freeze_until = <layer>, got cached_augmentations = "
                f"{self.cached_augmentations}"
            )
        return self

    @model_validator(mode="after")
    def _split_exists(self) -> "Config":
        folded = self.protocol == "k_fold"
        if self.fold >= (self.folds if folded else 1):
            most = f"below folds = {self.folds}" if folded else "0 unless protocol = k_fold"
            raise ValueError(f"fold must be {most}, got {self.fold}")
        if folded and self.select == "test":
            raise ValueError('k_fold selects on its folds: it does not go with select = "test"')
        if folded and self.validation_fraction not in ("auto", 1 / self.folds):
            raise ValueError("k_fold sets one fold aside: set folds, not validation_fraction")
        if (self.protocol == "shift") != (self.shift is not None):
            raise ValueError(
                "protocol=shift needs a step of its stages, and only it has one: shift.step=1 to 9"
            )
        if self.refit and self.select == "test":
            raise ValueError("refit needs a length chosen on validation classes: select = test")
        if isinstance(self.epochs, int) and self.schedule.warm_up >= self.epochs:
            raise ValueError(
                f"schedule.warm_up must be below epochs={self.epochs}, got {self.schedule.warm_up}"
            )
        return self

    @property
    def losses(self) -> list[Component]:
        """The losses of a sum (`loss=[...]`), or the one there is."""
        if self.loss.name != SUM:
            return [self.loss]
        values = self.loss.values
        for key in values:
            known(key, ["parts", "weights"], "key of a sum of losses")
        parts = [Component.model_validate(component) for component in values.get("parts", [])]
        weights = self.loss_weights
        if not parts or len(weights) != len(parts) or not all(weight > 0 for weight in weights):
            raise ValueError(
                "a sum of losses needs losses, and a weight above 0 for each if any: "
                f"loss=[a, b] loss.weights=[1.0, 0.5]; got {len(parts)} and {weights}"
            )
        return parts

    @property
    def loss_weights(self) -> list[float]:
        """Of the losses of a sum."""
        values = self.loss.values
        return list(values.get("weights") or [1.0] * len(values.get("parts", [0])))

    @property
    def loss_name(self) -> str:
        """In tables, messages and folders: triplet+proxy_anchor."""
        return "+".join(custom_components.short_name(component.name) for component in self.losses)

    @property
    def has_own_network(self) -> bool:
        """Whether the network comes from outside, and is all there is of one."""
        return custom_components.is_custom(self.network)

    @property
    def has_preset_network(self) -> bool:
        """Whether the network is one that was published as a whole."""
        return self.network != PLAIN and not self.has_own_network

    def hash(self) -> str:
        """Changes when anything that a result depends on changes."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        return dump(self.model_dump())


def is_label_loss(name: str) -> bool:
    """Whether a loss compares with class parameters; of an object its objective finds it out."""
    result = None if custom_components.is_object(name) else registry.find("losses", name)
    return isinstance(result, type) and issubclass(result, LabelLoss)


def depth_of(freeze_until: str | None) -> Depth:
    """How deep a training with this cut goes."""
    return "whole" if freeze_until is None else "head" if freeze_until == POOLED else "last"


class ResolvedConfig(Config):
    """A config in which nothing is "auto": what `resolve` gives, and what a run folder holds."""

    threads: Annotated[int, Field(ge=1)]
    workers: Annotated[int, Field(ge=0)]
    cpu_processes: Annotated[int, Field(ge=1)]
    cached_augmentations: Annotated[int, Field(ge=0)]
    embedding_size: Annotated[int, Field(ge=1)]
    image_size: Annotated[int, Field(ge=8)] | None
    batch_size: Annotated[int, Field(ge=2)]
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)]
    lr: Annotated[float, Field(gt=0)]
    validation_fraction: Annotated[float, Field(gt=0, lt=1)]
    normalize: bool
    depth: Depth

    @model_validator(mode="after")
    def _nothing_is_open(self) -> "ResolvedConfig":
        words = ("device", "backbone", "weights", "pooling", "freeze_until", "transform")
        left = [key for key in words if getattr(self, key) == "auto"]
        left += ["miner"] if self.miner is not None and self.miner.name == "auto" else []
        left += ["relevance.kind"] if self.relevance.kind == "auto" else []
        if left:
            raise ValueError(f'{", ".join(left)}: "auto" was not resolved')
        return self


AnyConfig = TypeVar("AnyConfig", bound=Config)


def make(values: dict[str, Any]) -> Config:
    """A config from plain values; what is wrong is said in one line."""
    return _made(toml.with_nothing(values), Config)


def make_resolved(values: dict[str, Any]) -> ResolvedConfig:
    """The config of a run folder."""
    return _made(values, ResolvedConfig)


def _made(values: dict[str, Any], kind: type[AnyConfig]) -> AnyConfig:
    values = {key: _as_table(key, value) for key, value in values.items()}
    data = values.get("data")
    if isinstance(data, dict) and data.get("name") == "domains":
        values = {"sampler": {"name": "by_domain"}} | values
    for key, value in values.items():
        known(key, list(Config.model_fields), "key", ELSEWHERE)
        for inner in value if key in TABLES and isinstance(value, dict) else ():
            known(inner, list(TABLES[key].model_fields), f"key of {key}")
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        tables: list[type[BaseModel]] = [Config, WeightedComponent, *TABLES.values()]
        keys = {key for table in tables for key in table.model_fields}  # pydantic also names types
        place = ".".join(str(s) for s in first["loc"] if s in keys or isinstance(s, int))
        message = first["msg"].removeprefix("Value error, ")
        if not place:
            raise ValueError(message) from None
        raise ValueError(f"{place}: {message}, got {first['input']!r}") from None


def override(values: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Values with `key=value` words laid over them; `loss=margin` forgets the old loss's values."""
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise ValueError(f"expected key=value, got {word!r}, e.g. lr=0.001 or loss=margin")
        values = put(values, key, _parsed(text))
    return values


def put(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of the values with one of them set, by a key such as `lr` or `loss.beta`."""
    values = json.loads(json.dumps(values))
    *tables, last = key.split(".")
    known(tables[0] if tables else last, list(Config.model_fields), "key", ELSEWHERE)
    table = values
    for name in tables:
        default = _default_table(name)
        current = table.setdefault(name, default)
        if not isinstance(current, dict):
            is_plain = current is None or isinstance(current, bool)  # no method's name
            what = "fraction" if isinstance(current, int | float) else "name"  # of label_noise=0.2
            table[name] = {} if is_plain else {what: current}
        table = table[name]
    table[last] = value
    return values


def _parsed(text: str) -> Any:
    """The TOML value of a word; a bare word is a string, `none` is nothing."""
    if text == NOTHING:
        return None
    try:
        return parse(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _default_table(key: str) -> Any:
    """What a table stands for before anything is said: the default method by its name."""
    default = Config.model_fields[key].default if key in Config.model_fields else None
    return (
        {"name": default.name}
        if isinstance(default, Component | OptimizerSettings | ScheduleSettings)
        else {}
    )


def _as_table(key: str, value: Any) -> Any:
    """`loss = "margin"` is short for `[loss] name = "margin"`, `metrics = "revisit"` for the
    metrics of that source."""
    if key == "loss":
        value = as_sum(value)
    if key in NAMED and isinstance(value, str):
        return {"name": value}
    if key == "data" and isinstance(value, list):
        return {"name": "domains", "roots": value}
    if key == "metrics" and isinstance(value, str):
        return metric_names.PRESETS.get(value, [value])
    if key == "regularizers" and isinstance(value, str):
        value = [value]
    if key == "regularizers" and isinstance(value, list):
        return [
            {"name": component} if isinstance(component, str) else component for component in value
        ]
    return value

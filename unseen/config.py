"""The settings of a run, and their way to and from TOML.

A config is frozen and strict: flat values, and one table per part that names a method and its
values,

    [loss]
    name = "margin"
    preset = "revisit"
    beta = 0.6

Overrides are written `lr=0.001 loss=margin loss.beta=0.6 regularizers=[]`. An unknown key or value
names the nearest right one. `"auto"` is settled by `settle.py`, which says why it chose what it
chose.
"""

import hashlib
import json
import tomllib
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from unseen import catalogue, config_toml, networks, outside
from unseen.config_keys import PLAIN, Keys
from unseen.config_tables import (
    ELSEWHERE,
    Adapter,
    Depth,
    Ensemble,
    Head,
    LabelFilter,
    Memory,
    Mixing,
    Noise,
    Optimising,
    Part,
    Relating,
    Scheduling,
    ShiftChoice,
    WeightedPart,
)
from unseen.config_toml import NOTHING, dump
from unseen.data.pictures import transforms
from unseen.evaluation import metric_names
from unseen.losses.base import LabelLoss
from unseen.names import known
from unseen.networks.backbone import FEATURES, OWN
from unseen.networks.pooling import POOLINGS
from unseen.networks.taps import POOLED

load, parse = config_toml.load, config_toml.parse  # the values of a file, of a text
OWN_NETWORK = "own"  # the backbone of a network from outside
COLUMNS_OF_0_2 = "evaluation_labels"  # now relevance.by


TABLES: dict[str, type[BaseModel]] = {
    "head": Head,
    "ensemble": Ensemble,
    "adapter": Adapter,
    "optimiser": Optimising,
    "schedule": Scheduling,
    "memory": Memory,
    "label_filter": LabelFilter,
    "label_noise": Noise,
    "manifold_mixup": Mixing,
    "relevance": Relating,
    "shift": ShiftChoice,
}
NAMED = ("loss", "miner", "sampler", "data", "optimiser", "schedule", "adapter", "label_filter")


class Config(Keys):
    """Everything a run depends on. The same config and data give the same result."""

    @field_validator("manifold_mixup", mode="before")
    @classmethod
    def _mixing(cls, given: Any) -> Any:
        """True and None are short for a table of defaults and for none."""
        if given is True:
            return {}
        return False if given is None else given

    @field_validator("network")
    @classmethod
    def _announced_network(cls, name: str) -> str:
        """What an installed package announces stands for where it lies."""
        found = outside.announced("networks").get(name)
        return name if found is None else found.value

    @model_validator(mode="after")
    def _parts_exist(self) -> "Config":
        parts = [("losses", self.loss), ("samplers", self.sampler)]
        parts += [("data", self.data)]
        parts += [("regularizers", part) for part in self.regularizers]
        if self.miner is not None and self.miner.name != "auto":
            parts.append(("miners", self.miner))
        for kind, part in parts:
            catalogue.check(kind, part.name, part.values, part.preset)
        catalogue.check("protocols", self.protocol, {})
        if self.has_preset_network:
            announced = outside.announced("networks")
            known(self.network, [PLAIN, *networks.PRESETS, *announced], "network")
        known(self.pooling, ["auto", OWN, *POOLINGS], "pooling")
        for metric in self.metrics:
            if not outside.is_object(metric):
                metric_names.parse_metric(metric)
        if self.transform not in (None, "auto"):
            transforms.known(self.transform)
        return self

    @model_validator(mode="after")
    def _loss_hears_of_tuples(self) -> "Config":
        given = {"miner": self.miner, "memory": self.memory}
        for key, what in (("miner", "tuples"), ("memory", "references")):
            asked = given[key] not in (None, Part(name="auto"))
            if asked and is_label_loss(self.loss.name):
                raise ValueError(
                    f"{self.loss.name} takes no {what}: leave the {key} out, {key}=none"
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
            is_settled = self.backbone == OWN_NETWORK or self.backbone.startswith(FEATURES)
            if not is_settled or self.pooling not in ("auto", OWN):
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
                "manifold_mixup mixes pictures and early layers, and freeze_until = "
                f"{self.freeze_until} runs those only once: leave one of them out"
            )
        if self.mirror and self.manifold_mixup:
            raise ValueError(
                "manifold_mixup mixes single pictures, mirror sees pairs: leave one out"
            )
        if self.training_sizes and self.freeze_until not in (None, "auto"):
            raise ValueError(
                f"training_sizes shows pictures of several sizes, and freeze_until = "
                f"{self.freeze_until} keeps those of one: leave one of them out"
            )
        if self.freeze_until is None and self.views not in ("auto", 0):
            raise ValueError(f"views needs freeze_until = <layer>, got views = {self.views}")
        return self

    @model_validator(mode="after")
    def _split_exists(self) -> "Config":
        folded = self.protocol == "k_fold"
        if self.fold >= (self.folds if folded else 1):
            most = f"below folds = {self.folds}" if folded else "0 unless protocol = k_fold"
            raise ValueError(f"fold must be {most}, got {self.fold}")
        if folded and self.select == "test":
            raise ValueError('k_fold selects on its folds: it does not go with select = "test"')
        if folded and self.validation_share not in ("auto", 1 / self.folds):
            raise ValueError("k_fold sets one fold aside: set folds, not validation_share")
        if (self.protocol == "shift") != (self.shift is not None):
            raise ValueError(
                "protocol=shift needs a step of its ladder, and only it has one: shift.step=1 to 9"
            )
        if self.refit and self.select == "test":
            raise ValueError("refit needs a length chosen on validation classes: select = test")
        if isinstance(self.epochs, int) and self.schedule.warm_up >= self.epochs:
            message = f"schedule.warm_up must be below epochs={self.epochs}"
            raise ValueError(f"{message}, got {self.schedule.warm_up}")
        return self

    @property
    def has_own_network(self) -> bool:
        """Whether the network comes from outside, and is all there is of one."""
        return outside.is_from_outside(self.network)

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
    found = None if outside.is_object(name) else catalogue.find("losses", name)
    return isinstance(found, type) and issubclass(found, LabelLoss)


def depth_of(freeze_until: str | None) -> Depth:
    """How deep a training with this cut goes."""
    return "whole" if freeze_until is None else "head" if freeze_until == POOLED else "last"


class SettledConfig(Config):
    """A config in which nothing is "auto": what `settle` gives, and what a run folder holds."""

    threads: Annotated[int, Field(ge=1)]
    workers: Annotated[int, Field(ge=0)]
    shares: Annotated[int, Field(ge=1)] = 1  # runs before 0.3 have no such key
    views: Annotated[int, Field(ge=0)]
    embedding_size: Annotated[int, Field(ge=1)]
    picture_size: Annotated[int, Field(ge=8)] | None
    batch_size: Annotated[int, Field(ge=2)]
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)]
    lr: Annotated[float, Field(gt=0)]
    validation_share: Annotated[float, Field(gt=0, lt=1)]
    normalise: bool
    depth: Depth

    @model_validator(mode="before")
    @classmethod
    def _depth_of_older_runs(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A run from before `depth` was a key says it by its cut."""
        older: dict[str, Any] = {"depth": depth_of(values.get("freeze_until"))}
        relating = values.get("relevance", {})
        if isinstance(relating, dict):  # before there were kinds, classes were the same
            older["relevance"] = {"kind": "labels"} | relating
            values = {key: value for key, value in values.items() if key != "relevance"}
        return older | values

    @model_validator(mode="after")
    def _nothing_is_open(self) -> "SettledConfig":
        words = ("device", "backbone", "weights", "pooling", "freeze_until", "transform")
        left = [key for key in words if getattr(self, key) == "auto"]
        left += ["miner"] if self.miner is not None and self.miner.name == "auto" else []
        left += ["relevance.kind"] if self.relevance.kind == "auto" else []
        if left:
            raise ValueError(f'{", ".join(left)}: "auto" was not settled')
        return self


AnyConfig = TypeVar("AnyConfig", bound=Config)


def make(values: dict[str, Any]) -> Config:
    """A config from plain values; what is wrong is said in one line."""
    return _made(values, Config)


def make_settled(values: dict[str, Any]) -> SettledConfig:
    """The config of a run folder."""
    return _made(values, SettledConfig)


def _made(values: dict[str, Any], kind: type[AnyConfig]) -> AnyConfig:
    values = {key: _as_part(key, value) for key, value in _renamed(values).items()}
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
        tables: list[type[BaseModel]] = [Config, WeightedPart, *TABLES.values()]
        keys = {key for table in tables for key in table.model_fields}  # pydantic also names types
        place = ".".join(str(s) for s in first["loc"] if s in keys or isinstance(s, int))
        told = first["msg"].removeprefix("Value error, ")
        if not place:
            raise ValueError(told) from None
        raise ValueError(f"{place}: {told}, got {first['input']!r}") from None


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Keys that versions before 0.3 had."""
    columns = values.get(COLUMNS_OF_0_2)
    if columns is None:
        return values
    values = {key: value for key, value in values.items() if key != COLUMNS_OF_0_2}
    return put(values, "relevance.by", columns) if columns else values


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
        default = _default_part(name)
        current = table.setdefault(name, default)
        if not isinstance(current, dict):
            is_plain = current is None or isinstance(current, bool)  # no method's name
            what = "share" if isinstance(current, int | float) else "name"  # of label_noise=0.2
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


def _default_part(key: str) -> Any:
    """What a table stands for before anything is said: the default method by its name."""
    default = Config.model_fields[key].default if key in Config.model_fields else None
    return {"name": default.name} if isinstance(default, Part | Optimising | Scheduling) else {}


def _as_part(key: str, value: Any) -> Any:
    """`loss = "margin"` is short for `[loss] name = "margin"`, `metrics = "revisit"` for the
    metrics of that source."""
    if key in NAMED and isinstance(value, str):
        return {"name": value}
    if key == "data" and isinstance(value, list):
        return {"name": "domains", "roots": value}
    if key == "metrics" and isinstance(value, str):
        return metric_names.PRESETS.get(value, [value])
    if key == "regularizers" and isinstance(value, str):
        value = [value]
    if key == "regularizers" and isinstance(value, list):
        return [{"name": part} if isinstance(part, str) else part for part in value]
    return value

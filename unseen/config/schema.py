"""The settings of a run, and their way to and from TOML.

A config is frozen and strict: five tables, and one table per method, which names it and its values,

    [optimizer]
    lr = 1e-3

    [loss]
    name = "margin"
    preset = "revisit"
    beta = 0.6

A key is unique, so it may be written without its table (`keys.SHORT`), in a file, in Python and in
overrides: `lr=0.001 loss=margin loss.beta=0.6 regularizers=[]`. An unknown key or value names the
nearest right one. `"auto"` is resolved by `config/resolve.py`, which says why it chose what it
chose.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import tomli_w
from pydantic import BaseModel, ValidationError, model_validator

from unseen.config.keys import (
    GROUPS,
    SHORT,
    TABLES,
    DataSettings,
    Keys,
    by_table,
    short,
    short_key,
)
from unseen.config.network_kinds import lacks
from unseen.config.tables import ELSEWHERE, SUM, Component, Depth, WeightedComponent
from unseen.core import custom_components, registry
from unseen.core.names import known, near_path
from unseen.data.images import transforms
from unseen.evaluation import metric_names
from unseen.losses.base import LabelLoss
from unseen.models.layer_outputs import EMBEDDING, POOLED

NOTHING = "none"  # TOML has no null

EXCLUDE = (  # pairs of keys, and why they do not go together
    ("freeze_until", "manifold_mixup", "what is mixed would run only once"),
    ("mirror", "manifold_mixup", "one sees pairs of images, the other mixes single ones"),
    ("freeze_until", "training_sizes", "activations are kept of images of one size"),
)


def dump(values: dict[str, Any]) -> str:
    """Values as TOML."""
    return tomli_w.dumps(_swapped(values, None, NOTHING))


def with_nothing(values: dict[str, Any]) -> dict[str, Any]:
    """The word `none` as nothing, anywhere in a config."""
    swapped: dict[str, Any] = _swapped(values, NOTHING, None)
    return swapped


def parse(text: str) -> dict[str, Any]:
    """The values of a TOML text."""
    try:
        return with_nothing(tomllib.loads(text))
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None


def load(path: Path) -> dict[str, Any]:
    """The values of a TOML file; a file that cannot be read says why in one line."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"no such config file: {path}{near_path(path)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error


def _swapped(value: Any, old: Any, new: Any) -> Any:
    """TOML has no null: nothing is written as the word `none`, anywhere in a config."""
    if isinstance(value, dict):
        return {key: _swapped(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_swapped(item, old, new) for item in value]
    return new if isinstance(value, str | None) and value == old else value


class Config(Keys):
    """Everything a run depends on. The same config and data give the same result."""

    @model_validator(mode="after")
    def _parts_exist(self) -> "Config":
        parts = [("losses", component) for component in self.losses]
        parts += [("samplers", self.sampler), ("data", self.data)]
        parts += [("regularizers", component) for component in self.regularizers]
        if self.miner is not None and self.miner.name != "auto":
            parts.append(("miners", self.miner))
        for kind, component in parts:
            registry.check(kind, component.name, component.values, component.preset)
        registry.check("protocols", self.evaluation.protocol.name, {})
        for metric in self.evaluation.metrics:
            if not custom_components.is_object(metric):
                metric_names.parse_metric(metric)
        if self.data.transform.name not in (None, "auto"):
            transforms.known(self.data.transform.name)
        return self

    @model_validator(mode="after")
    def _loss_takes_tuples(self) -> "Config":
        selected = {"miner": self.miner, "memory": self.training.memory}
        for key, what in (("miner", "tuples"), ("memory", "references")):
            is_selected = selected[key] not in (None, Component(name="auto"))
            if is_selected and all(is_label_loss(component.name) for component in self.losses):
                raise ValueError(
                    f"{self.loss_name} takes no {what}: leave the {key} out, {key}=none"
                )
        return self

    @model_validator(mode="after")
    def _orders_exist(self) -> "Config":
        if self.evaluation.descriptor == "orders" and "horde" not in [
            r.name for r in self.regularizers
        ]:
            raise ValueError(
                "descriptor = orders needs the regularizer that makes them: regularizers=horde"
            )
        return self

    @model_validator(mode="after")
    def _keys_fit(self) -> "Config":
        values = self.flat()
        for one, other, why in EXCLUDE:
            if all(values[key] not in (None, "auto", False, []) for key in (one, other)):
                raise ValueError(f"{one} and {other} exclude each other, {why}: leave one out")
        frozen, schedule = self.model.frozen, self.optimizer.schedule
        if frozen.freeze_until is None and frozen.cached_augmentations not in ("auto", 0):
            raise ValueError(
                "cached_augmentations needs freeze_until = <layer>, got cached_augmentations = "
                f"{frozen.cached_augmentations}"
            )
        protocol, epochs = self.evaluation.protocol, self.training.epochs
        if protocol.name == "k_fold" and self.training.validation.select == "test":
            raise ValueError('k_fold selects on its folds: it does not go with select = "test"')
        if isinstance(epochs, int) and schedule.warm_up >= epochs:
            raise ValueError(
                f"schedule.warm_up must be below epochs={epochs}, got {schedule.warm_up}"
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

    def flat(self) -> dict[str, Any]:
        """Each key as it is written alone, with its value as TOML has it."""
        values = self.model_dump()
        values["model"].pop("kind")
        return short(values)

    def user_keys(self) -> set[str]:
        """The keys that somebody has set, as they are written alone."""
        return set(_set_keys(self, ""))

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """A copy with other values, by keys as they are written alone. They are not checked."""
        values = dict(values)
        if isinstance(data := values.get("data"), Component):
            set_keys = DataSettings.model_fields.keys() & self.data.model_fields_set
            own = {key: getattr(self.data, key) for key in set_keys}
            table = type(self.data)(**(own | dict(data)))
            return self.model_copy(update={"data": table}).with_values(
                {key: value for key, value in values.items() if key != "data"}
            )
        return _updated(self, by_table(values), "")

    def hash(self) -> str:
        """Changes when anything that a result depends on changes."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_toml(self) -> str:
        return dump(self.model_dump())


AnyTable = TypeVar("AnyTable", bound=BaseModel)


def _updated(table: AnyTable, values: Mapping[str, Any], path: str) -> AnyTable:
    def inner(key: str, value: Any) -> Any:
        place = f"{path}{key}"
        return _updated(getattr(table, key), value, f"{place}.") if place in GROUPS else value

    return table.model_copy(update={key: inner(key, value) for key, value in values.items()})


def _set_keys(table: BaseModel, path: str) -> Iterator[str]:
    for key in table.model_fields_set:
        if f"{path}{key}" in GROUPS:
            yield from _set_keys(getattr(table, key), f"{path}{key}.")
        elif key != "kind":  # which follows from the others
            yield key if SHORT.get(key) == f"{path}{key}" else path.split(".")[-2]


def is_label_loss(name: str) -> bool:
    """Whether a loss compares with class parameters; of an object its objective finds it out."""
    result = None if custom_components.is_object(name) else registry.find("losses", name)
    return isinstance(result, type) and issubclass(result, LabelLoss)


def depth_of(freeze_until: str | None) -> Depth:
    """How deep a training from this freeze point on goes."""
    return "full" if freeze_until is None else "head" if freeze_until == POOLED else "last_layers"


class ResolvedConfig(Config):
    """A config in which nothing is "auto": what `resolve` gives, and what a run folder holds."""

    @model_validator(mode="after")
    def _nothing_is_open(self) -> "ResolvedConfig":
        values = self.flat()
        values |= {"miner": values["miner"] and values["miner"]["name"]}
        values |= {"relevance.kind": values["relevance"]["kind"]}
        if left := [key for key, value in values.items() if value == "auto"]:
            raise ValueError(f'{", ".join(left)}: "auto" was not resolved')
        return self

    @model_validator(mode="after")
    def _nested_are_prefixes(self) -> "ResolvedConfig":
        """Of an embedding that is one vector, and evaluated."""
        sizes, size = self.model.nested_sizes, self.model.embedding_size
        if sizes and sizes[-1] != size:
            raise ValueError(
                f"the last of nested must be embedding_size = {size}, got nested = {sizes}"
            )
        if sizes and self.evaluation.descriptor != EMBEDDING:
            raise ValueError(
                "nested trains prefixes of the embedding: use descriptor=embedding, "
                f"got {self.evaluation.descriptor}"
            )
        return self


AnyConfig = TypeVar("AnyConfig", bound=Config)


def make(values: dict[str, Any]) -> Config:
    """A config from plain values; what is wrong is said in one line."""
    return _made(with_nothing(values), Config)


def make_resolved(values: dict[str, Any]) -> ResolvedConfig:
    """The config of a run folder."""
    return _made(values, ResolvedConfig)


def _made(values: dict[str, Any], kind: type[AnyConfig]) -> AnyConfig:
    tables = by_table(values)
    if tables.get("data", {}).get("name") == "domains":
        tables = {"sampler": {"name": "by_domain"}} | tables
    for path, table in (GROUPS | {SHORT[key]: table for key, table in TABLES.items()}).items():
        value: Any = tables
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, dict) and path != "data":
            for key in value:
                known(key, list(table.model_fields), f"key of {path.rpartition('.')[2]}")
    try:
        return kind(**tables)
    except ValidationError as error:
        raise ValueError(_in_one_line(error, tables.get("model", {}))) from None


def _in_one_line(error: ValidationError, model: dict[str, Any]) -> str:
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    place = list(first["loc"])
    if place[:1] == ["model"] and len(place) > 2:
        kind, key = str(place[1]), str(place[2])
        if lacks(kind, key):
            key_of_kind = {"ensemble": "ensemble", "features": "backbone"}.get(kind, "network")
            what = f"{key_of_kind} = {model[key_of_kind]}" if kind != "ensemble" else kind
            return f"{key} does not go with {what}: leave one of them out"
        del place[1]
    models: list[type[BaseModel]] = [Keys, WeightedComponent, *GROUPS.values(), *TABLES.values()]
    keys = {key for table in models for key in table.model_fields}  # pydantic also names types
    path = ".".join(str(key) for key in place if key in keys or isinstance(key, int))
    if not path or (path in GROUPS and isinstance(first["input"], dict)):
        return message
    return f"{short_key(path)}: {message}, got {first['input']!r}"


def override(values: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Values with `key=value` words laid over them; `loss=margin` forgets the old loss's values."""
    values = short(values)
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise ValueError(f"expected key=value, got {word!r}, e.g. lr=0.001 or loss=margin")
        values = put(values, key, _parsed(text))
    return values


def put(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of the values with one of them set, by a key such as `lr` or `loss.beta`; no key of
    the values has a table that it may be written without (`short`)."""
    values = json.loads(json.dumps(values))
    *tables, last = short_key(key).split(".")
    known(tables[0] if tables else last, list(SHORT), "key", ELSEWHERE)
    table = values
    for name in tables:
        default = _default_table(name)
        current = table.setdefault(name, default)
        if not isinstance(current, dict):
            is_plain = current is None or isinstance(current, bool)  # no method's name
            what = {"label_noise": "fraction", "nested": "sizes"}.get(name, "name")
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
    default = Keys.model_fields[key].default if key in Keys.model_fields else None
    return {"name": default.name} if isinstance(default, Component) and key != "data" else {}

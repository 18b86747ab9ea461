"""A study file: what is compared, and what is the same for all.

    name = "losses"                        # of the study; also its name in the storage
    seeds = [0, 1, 2]                      # every configuration gets the same ones

    [config]                               # the same for all runs: any settings of `unseen train`
    data = "glyphs"
    epochs = 5

    [factors]                              # every combination is a configuration
    loss = ["margin", "triplet"]           # a list: values of a setting
    embedding_size = [64, 128]

    [factors.regularizer]                  # a table: named values, each a table of settings
    none = {}
    "density 10" = { regularizers = [{ name = "density", weight = 10.0 }] }

    [search]                               # optional: tune first, see `tuning.py`
    mode = "tpe"
    trials = 20
    config = { epochs = 2 }
    parameters = [{ key = "lr", low = 1e-4, high = 1e-2, log = true }]

The first factor (or `compare`) names the methods that tables and tests compare; combinations of the
other factors are the experiments in which they meet. Each method is compared with the best, or with
the one that `reference` names; `reference = {a = "c", b = "c", c = "d"}` gives each its own, where
"a at LAYER" is the network of `a` read at another layer, and no run of its own.
`published = {a = 2.1}` is what a source says that a method adds to its reference, in points
("EXPERIMENT: METHOD" where experiments differ). Without factors, a search tunes one method, named
as the study. With `protocol = "k_fold"` every seed runs all folds. The key of a run is a
hash of its settings, so a changed study file runs what is new and keeps what is the same.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unseen.config import schema as configs
from unseen.config.keys import SHORT, short
from unseen.core.names import known
from unseen.training.nested import AT

Values = dict[str, Any]
ALONE = {"threads": 1, "workers": 0}  # several runs share a machine, each on one core
# Columns and attributes that every run has; a factor of the same name would hide them.
RESERVED = (
    "planned", "title", "attempt", "worker", "error", "files", "parameters",
    "seed", "fold", "state", "folder", "seconds", "epoch",
)  # fmt: skip
ONE = "study"  # what tables call the column of the only method, where there are no factors


class Parameter(BaseModel):
    """A value to tune: from a list, or between two ends. `where` names the configurations it is
    for, as {factor: value}; without it, it is tuned for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    values: list[Any] = []
    low: int | float | None = None
    high: int | float | None = None
    step: int | float | None = None
    log: bool = False
    where: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_a_range(self) -> "Parameter":
        ends = self.low is not None and self.high is not None
        if bool(self.values) == ends:
            raise ValueError(f"{self.key} needs either values, or low and high")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"{self.key}: low must be below high, got {self.low}, {self.high}")
        return self

    def allows(self, value: Any) -> bool:
        """Whether a search can have proposed a value."""
        if self.values:
            return value in self.values
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        assert self.low is not None
        assert self.high is not None
        slack = 1e-9 * max(abs(self.low), abs(self.high))
        return self.low - slack <= value <= self.high + slack


class Search(BaseModel):
    """How values are tuned before configurations are compared: on validation classes, one seed.
    tolerance: scores of a coordinate this close to the best count as equal, and the first value
    listed of them is taken, so that methods do not differ by a choice that trials cannot make."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["coordinate", "tpe"]
    trials: int = Field(default=20, ge=1)  # of each configuration, for tpe
    prune: bool = True
    seed: int = 0
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    config: Values = {}
    parameters: list[Parameter] = Field(min_length=1)

    @model_validator(mode="after")
    def _coordinates_are_lists(self) -> "Search":
        for parameter in self.parameters if self.mode == "coordinate" else ():
            if not parameter.values and parameter.step is None:
                raise ValueError(f"a coordinate search needs values or a step for {parameter.key}")
        return self


class Plan(BaseModel):
    """A study as its file says it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str = ""
    origin: str = ""  # SHA-256 of the archive it was in before its files were written anew
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    metric: str = "recall@1"
    compare: str = ""
    reference: str | dict[str, str] = ""
    published: dict[str, float] = {}
    tuned_by: str = ""  # the source whose settings all runs have: its rates count as tuned
    retries: int = Field(default=1, ge=0)
    config: Values = {}
    factors: dict[str, list[Any] | dict[str, Values]] = {}
    search: Search | None = None

    @field_validator("name")
    @classmethod
    def _is_a_plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[\w .+-]+", name):
            raise ValueError(f"use letters, digits, spaces and _ . + - only, got {name!r}")
        return name

    @model_validator(mode="before")
    @classmethod
    def _in_the_order_of_a_stored_file(cls, values: Values) -> Values:
        """TOML has lists before tables, and the names of runs follow the order of the factors; the
        first one as given is compared."""
        if isinstance(config := values.get("config"), dict):
            values = values | {"config": short(config)}
        factors = values.get("factors")
        if not isinstance(factors, dict):
            return values
        tables_last = dict(sorted(factors.items(), key=lambda item: isinstance(item[1], dict)))
        return {"compare": next(iter(factors), "")} | values | {"factors": tables_last}

    @model_validator(mode="after")
    def _all_runs_can_be_made(self) -> "Plan":
        if not self.factors and self.search is None:
            raise ValueError("nothing to compare: give [factors], a [search] to tune, or both")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must differ, got {self.seeds}")
        if self.compare:
            known(self.compare, list(self.factors), "factor")
        methods = list(dict.fromkeys(v.labels[self.compared] for v in self.configurations()))
        self._refuse_unknown_methods(methods)
        for parameter in self.search.parameters if self.search else ():
            for factor in parameter.where:
                known(factor, list(self.factors), "factor")
        titles: dict[str, str] = {}
        for configuration in self.configurations():
            for planned in configuration.planned_runs(self, {}):
                for layer in self.layers_of(configuration.labels[self.compared]):
                    configs.make(configs.put(planned.values, "descriptor", layer))
                config = configs.make(planned.values)
                known(self.metric, config.evaluation.metrics, "metric of the runs")
                self._refuse_names({*RESERVED, *config.evaluation.metrics})
                if titles.setdefault(planned.key, planned.title) != planned.title:
                    raise ValueError(
                        f"{titles[planned.key]!r} and {planned.title!r} are the same run"
                    )
        return self

    def _refuse_unknown_methods(self, methods: list[str]) -> None:
        """Names of references and of published effects that are no method's."""
        read = [f"{method}{AT}{layer}" for method in methods for layer in self.layers_of(method)]
        methods = [*methods, *read]
        for method, other in self.meets(methods):
            for name in (method, other):
                known(name, methods, f"value of {self.compared} as a reference")
            if method == other:
                raise ValueError(f"reference: {method} cannot be compared with itself")
        if self.published and not self.reference:
            raise ValueError("published effects need the method they are against: reference = ...")
        for name in self.published:
            method = known(
                name.rpartition(": ")[2], methods, f"value of {self.compared} as published"
            )
            if isinstance(self.reference, dict) and method not in self.reference:
                raise ValueError(f"published: say what {method} is compared with in `reference`")

    def meets(self, methods: list[str]) -> list[tuple[str, str]]:
        """(method, the one it is compared with), where the file says so; else that is the best."""
        if isinstance(self.reference, dict):
            return list(self.reference.items())
        return [
            (method, self.reference) for method in methods if self.reference not in ("", method)
        ]

    def layers_of(self, method: str) -> list[str]:
        """Other layers that its runs are evaluated at: "METHOD at LAYER" stands in `reference`."""
        if not isinstance(self.reference, dict):
            return []
        run = [label for label, _ in _options(self.compared, self.factors.get(self.compared, []))]
        named = dict.fromkeys([*self.reference, *self.reference.values()])
        read = [name for name in named if name.startswith(f"{method}{AT}") and name not in run]
        return [name.removeprefix(f"{method}{AT}") for name in read]

    def _refuse_names(self, taken: set[str]) -> None:
        tuned = {parameter.key for parameter in self.search.parameters} if self.search else set()
        for factor in self.factors:
            if factor in taken:
                raise ValueError(f"a factor cannot be called {factor}: tables have a column of it")
            if factor in tuned:
                raise ValueError(f"{factor} is a factor and tuned: leave it out of one of the two")

    @property
    def compared(self) -> str:
        """The factor whose values are the methods."""
        return self.compare or next(iter(self.factors), ONE)

    def configurations(self) -> list["Configuration"]:
        """Every combination of the factors' values."""
        options = [_options(name, values) for name, values in self.factors.items()]
        made = []
        for chosen in itertools.product(*options):
            labels = {name: label for name, (label, _) in zip(self.factors, chosen, strict=True)}
            labels = labels or {ONE: self.name}
            values = ALONE | self.config
            for _, settings in chosen:
                for key, value in settings.items():
                    values = configs.put(values, key, value)
            made.append(Configuration(labels, values))
        return made

    def to_toml(self) -> str:
        """A study file that gives the same plan."""
        return configs.dump(self.model_dump(exclude_defaults=True))


@dataclass(frozen=True)
class PlannedRun:
    """One run: its settings and its place in the study."""

    stage: Literal["search", "final"]
    labels: dict[str, str]
    values: Values
    parameters: Values = field(default_factory=dict)  # tuned values among the settings
    number: int = 0  # of a search: which trial

    @property
    def key(self) -> str:
        content = json.dumps([self.stage, self.values, self.number], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of its run folder: readable, and unique by the key."""
        seed, fold = self.values.get("seed", 0), self.values.get("fold")
        words = [*self.labels.values(), f"seed{seed}", *([f"fold{fold}"] if fold else [])]
        words = [self.stage] * (self.stage == "search") + words
        readable = re.sub(r"[^\w.+-]+", "_", "-".join(words))[:80]
        return f"{readable}-{self.key[:8]}"

    @property
    def title(self) -> str:
        tuned = [f"{key}={value}" for key, value in self.parameters.items()]
        fold = [f"fold {self.values['fold']}"] if self.values.get("fold") else []
        seed = f"seed {self.values.get('seed', 0)}"
        return ", ".join([*self.labels.values(), *tuned, seed, *fold])


@dataclass(frozen=True)
class Configuration:
    """A combination of the factors' values; `values` are its settings."""

    labels: dict[str, str]
    values: Values

    def planned_runs(self, plan: Plan, tuned: Mapping[str, Any]) -> Iterator[PlannedRun]:
        """The runs that are compared: every seed, every fold, with the tuned values."""
        values = self.values
        for key, value in tuned.items():
            values = configs.put(values, key, value)
        folds = (
            configs.make(values).evaluation.protocol.folds
            if values.get("protocol") == "k_fold"
            else 0
        )
        for seed in plan.seeds:
            seeded = configs.put(values, "seed", seed)
            for fold in range(folds) if folds else ():
                folded = configs.put(seeded, "fold", fold)
                yield PlannedRun("final", self.labels, folded, dict(tuned))
            if not folds:
                yield PlannedRun("final", self.labels, seeded, dict(tuned))


def load(path: Path) -> Plan:
    """A plan from a study file."""
    return make(configs.load(path))


def parse(text: str) -> Plan:
    """A plan from the text of a study file."""
    return make(configs.parse(text))


def make(values: Values) -> Plan:
    """A plan from plain values; what is wrong is said in one line."""
    for key in values:
        known(key, list(Plan.model_fields), "key of a study")
    try:
        return Plan(**values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"] if isinstance(key, str))
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"study: {place}: {message}" if place else f"study: {message}") from None


def _options(factor: str, values: list[Any] | dict[str, Values]) -> list[tuple[str, Values]]:
    """The values of a factor as (label, settings)."""
    if not values:
        raise ValueError(f"factor {factor} has no values")
    if isinstance(values, dict):
        return list(values.items())
    known(factor.split(".", maxsplit=1)[0], list(SHORT), "setting as a factor")
    if factor == "seed":
        raise ValueError("seeds are no factor: write seeds = [0, 1, 2] at the top of the file")
    options = [(label(value), {factor: value}) for value in values]
    if len({name for name, _ in options}) < len(options):
        raise ValueError(f"values of factor {factor} must differ, got {[n for n, _ in options]}")
    return options


def label(value: Any) -> str:
    """How a value is called in tables: {name = "margin", beta = 0.6} -> margin beta 0.6."""
    if isinstance(value, dict):
        rest = [f"{key} {label(item)}" for key, item in value.items() if key != "name"]
        return " ".join([*([str(value["name"])] if "name" in value else []), *rest])
    if isinstance(value, list):
        return " + ".join(label(item) for item in value) or "none"
    return "none" if value is None else str(value)

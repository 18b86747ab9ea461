"""Where runs have something else than their source, run by run and key by key.

    differences(ROTH, "cub200", run_configs(results))    ["epochs: 8 in 24 of 24 runs; ..."]

Compared are the source's values, whether all training classes are trained on, and every loss, miner
and regularizer with the source's preset. What a study varies on purpose differs in no run, where
one of its values is the source's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.core import registry
from unseen.data.images.transforms import SOURCES
from unseen.reproductions.source_values import Source, planned
from unseen.samplers.m_per_class import MPerClassSampler
from unseen.studies.results import Results
from unseen.studies.study_file import Plan, Values
from unseen.studies.what_was_trained import plain_value, resolved_configs

SHOWN = 3  # values of a key that runs have
KINDS = {"loss": "losses", "miner": "miners", "regularizers": "regularizers"}


@dataclass(frozen=True)
class Compared:
    """The configs of a plan's runs. varied: the keys that the plan compares."""

    configs: Sequence[Values]
    varied: frozenset[str]


def planned_configs(plans: Iterable[Plan]) -> list[Compared]:
    """As plans say, with all that the data resolve open."""
    return [Compared(planned([plan]), _varied(plan)) for plan in plans]


def run_configs(results: Iterable[Results]) -> list[Compared]:
    """As finished runs had them."""
    return [Compared(resolved_configs([each]), _varied(each.plan)) for each in results]


def _varied(plan: Plan) -> frozenset[str]:
    keys = set()
    for name, values in plan.factors.items():
        keys |= {k for v in values.values() for k in v} if isinstance(values, Mapping) else {name}
    return frozenset(keys)


def differences(source: Source, data: str, compared: Sequence[Compared]) -> list[str]:
    """A line for each key in which some runs have another value."""
    total = sum(len(each.configs) for each in compared)
    counts: dict[tuple[str, str], Counter[str]] = {}
    for each in compared:
        rows = [_pairs(source, data, config) for config in each.configs]
        for key in dict.fromkeys(key for row in rows for key in row):
            pairs = [row[key] for row in rows if key in row]
            if key in each.varied and any(ours == theirs for ours, theirs in pairs):
                continue
            for ours, theirs in pairs:
                if ours != theirs:
                    counts.setdefault((key, theirs), Counter())[ours] += 1
    return [_line(key, theirs, ours, total) for (key, theirs), ours in counts.items()]


def _line(key: str, theirs: str, ours: Counter[str], total: int) -> str:
    shown = ", ".join(list(ours)[:SHOWN]) + (" ..." if len(ours) > SHOWN else "")
    return f"{key}: {shown} in {ours.total()} of {total} runs; the source has {theirs}."


def _pairs(source: Source, data: str, config: Values) -> dict[str, tuple[str, str]]:
    """Key -> ours and theirs, in words."""
    expected = source.expected(config, data)
    loss = expected.pop("loss", {})
    pairs = {key: _words(key, config[key], theirs) for key, theirs in expected.items()}
    trains_on_all = expected.get("select") == "test" or bool(expected.get("refit"))
    fraction = config["validation_fraction"]
    fraction = "some" if isinstance(fraction, str) else f"{fraction:.0%}"
    is_whole = config["select"] == "test" or config["refit"]
    whole, apart = "all are trained on", f"{fraction} select the epoch and are not trained on"
    pairs["training classes"] = (whole if is_whole else apart, whole if trains_on_all else apart)
    for key, kind in KINDS.items():
        components = config[key] if isinstance(config[key], list) else [config[key]]
        for component in components:
            if component is not None and component["name"] not in ("auto", "sum"):
                pairs |= _preset_pairs(source, kind, component, loss if key == "loss" else {})
    return pairs


def _preset_pairs(
    source: Source, kind: str, component: Values, more: Values
) -> dict[str, tuple[str, str]]:
    """What a method has beside its preset, against the source's preset; its name where the source
    has none."""
    presets = getattr(registry.find(kind, component["name"]), "PRESETS", {})
    if source.preset not in presets:
        return {component["name"]: ("the package's values", "values it does not print")}
    entry = registry.entry(kind, component["name"]).defaults
    theirs = entry | presets[source.preset] | more
    usual = presets.get(component.get("preset") or "", {})
    values = {k: v for k, v in component.items() if k not in ("name", "preset", "weight")}
    ours = entry | usual | values
    return {
        f"{component['name']}.{key}": (f"{plain_value(ours[key])}", f"{plain_value(theirs[key])}")
        for key in ours
        if key in theirs and not _is_varied(source, f"{component['name']}.{key}", ours[key])
    }


def _is_varied(source: Source, key: str, value: Any) -> bool:
    return key in source.varied and (not source.varied[key] or value in source.varied[key])


def _words(key: str, ours: Any, theirs: Any) -> tuple[str, str]:
    """Of a part only what the source says of it is compared."""
    return _text(key, ours, theirs), _text(key, theirs, theirs)


def _text(key: str, value: Any, theirs: Any) -> str:
    """For people; of a part its name and what the source says of it, of a sampler how many of a
    class it draws."""
    value = plain_value(value)
    if value == "auto":
        return "as the data say"
    if key == "transform":  # sources whose transforms are alike
        return str(SOURCES.get(value, value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(theirs, Mapping) and isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return str(value)
    if key == "sampler" and value["name"] == "m_per_class":
        usual = {"per_class": 4} | MPerClassSampler.PRESETS.get(value.get("preset") or "", {})
        steps = value.get("steps")
        count = f"{value.get('per_class', usual['per_class'])} of a class"
        return count + (f", {steps} batches an epoch" if steps else "")
    names = (
        [k for k in theirs if k not in ("name", "preset")] if isinstance(theirs, Mapping) else []
    )
    words = [f"{k} {_shortened(value[k])}" for k in names if k in value]
    return " ".join([*([str(value["name"])] if "name" in value else []), *words])


def _shortened(value: Any) -> Any:
    is_long = isinstance(value, list) and len(value) > SHOWN
    return f"[{value[0]}, {value[1]}, ... {value[-1]}]" if is_long else plain_value(value)

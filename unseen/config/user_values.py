"""The values of a config from what a user passes in Python: objects, data of any kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unseen.config import find_data
from unseen.core import custom_components
from unseen.data.images.decode import is_image
from unseen.data.in_memory.user_data import as_dataset

_PARTS = ("network", "loss", "miner", "sampler", "protocol")
_LISTS = ("regularizers", "metrics", "also")


def values_of(data: Any, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a config, and the objects that they name."""
    values, objects = named(dict(settings))
    if isinstance(data, str | Path):
        values["data"] = find_data.data_table(str(data))
    elif isinstance(data, Mapping):
        values["data"] = dict(data)
    elif _are_domains(data):
        values["data"] = find_data.domains_table([str(each) for each in data])
    else:
        dataset = as_dataset(data)
        name = custom_components.object_name(data)
        values["data"], objects[name] = {"name": name}, dataset
    return values, objects


def _are_domains(data: Any) -> bool:
    """Whether data is a list of folders, tables or names, not of single images."""
    are_words = isinstance(data, list) and all(isinstance(each, str | Path) for each in data)
    return are_words and bool(data) and not all(is_image(Path(each).name) for each in data)


def named(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings with the name of each object in its place, and the objects by their names."""
    objects: dict[str, Any] = {}

    def name(component: Any) -> Any:
        if component is None or isinstance(component, str | dict):
            return component
        word = custom_components.object_name(component)
        objects[word] = component
        return word

    values = dict(settings)
    for key in _PARTS:
        if key == "loss" and isinstance(values.get(key), list):
            pairs = [_weighted(component) for component in values[key]]
            values[key] = {"name": [name(component) for _, component in pairs]}
            values[key] |= {"weights": [1.0 if weight is None else weight for weight, _ in pairs]}
        elif key in values:
            values[key] = name(values[key])
    for key in _LISTS:
        if isinstance(values.get(key), list | tuple):
            pairs = [_weighted(component) for component in values[key]]
            values[key] = [
                name(component) if weight is None else {"name": name(component), "weight": weight}
                for weight, component in pairs
            ]
    return values, objects


def _weighted(component: Any) -> tuple[float | None, Any]:
    """A loss or a regularizer may come with its weight: (0.1, my_loss) or (my_loss, 0.1)."""
    if not isinstance(component, tuple):
        return None, component
    weights = [each for each in component if isinstance(each, int | float)]
    if len(component) != 2 or len(weights) != 1:
        raise ValueError(f"a part with its weight is (0.1, part), got {component!r}")
    return float(weights[0]), component[component[0] is weights[0]]

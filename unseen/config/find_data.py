"""Data by a user's word: what a name, a file or a folder stands for, and the data set itself."""

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen import data as data_sets
from unseen.config.tables import Component
from unseen.core import custom_components, registry, uris
from unseen.core.contracts import Dataset, Progress
from unseen.core.names import advice, near_path
from unseen.core.reason import Reason
from unseen.core.uris import Place
from unseen.data.base import HUB, INCOMPLETE

_FILES = ("arrays", "coco", "hugging_face", "packed", "parquet", "table", "webdataset")
_NO_PATH = ":*{"  # hf:name, s3://bucket/photos, shards-*.tar, shards-{0..9}.tar


def open_data(
    component: Component, progress: Progress | None = None, strict: bool = False
) -> Dataset:
    """The data set a config names; `strict`: a file that cannot be read is an error."""
    wanted = {p.name: p.default for p in registry.parameters(registry.find("data", component.name))}
    if wanted.get("root") is inspect.Parameter.empty and "root" not in component.values:
        raise ValueError(f"{component.name} needs a path: data.root=PATH, or `unseen train PATH`")
    made = registry.create(
        "data",
        component.name,
        component.values,
        progress=progress,
        strict=strict,
        open_root=lambda root: open_data(Component(**data_table(root)), progress, strict),
    )
    return made if isinstance(made, Dataset) else data_sets.as_dataset(made, progress)


def data_table(data: str, values: Any = None) -> dict[str, Any]:
    """The table `data` of a config from a user's word: a built-in set by its name, anything else by
    what it looks like; several with commas between are domains; `values` stay."""
    names = registry.names("data")
    table = dict(values) if isinstance(values, dict) else {}
    if "," in data and not Path(data).exists() and not any(mark in data for mark in _NO_PATH):
        return table | domains_table(data.split(","))
    is_named = data in names and not Path(data).is_dir()
    if is_named or custom_components.is_reference(data):
        return table | {"name": data}
    is_path = not any(mark in data for mark in _NO_PATH)
    if "/" not in data and is_path and not Path(data).exists():
        near_one = near_path(data)
        missing = f"no such file or folder: {data}{near_one}"
        if not near_one and not Path(data).suffix:  # rather a name
            near = advice(data, [name for name in names if name != "folder"])
            missing += f", and no data set of that name: {near}"
        raise FileNotFoundError(missing)
    place = uris.as_place(data)
    result = {"name": data_name(place), "root": data}
    if result["name"] == "folder" and (isinstance(place, str) or place.is_dir()):
        from unseen.data.folder import layout  # noqa: PLC0415 - of folders alone

        return layout(place) | table | result
    return table | result


def domains_table(roots: Sequence[str]) -> dict[str, Any]:
    """The table `data` of several data sets; paths in full: a run may be opened from anywhere."""
    for root in roots:
        data_table(root)  # what is not there is said at once
    whole = [os.path.abspath(root) if Path(root).exists() else root for root in roots]
    return {"name": "domains", "roots": whole}


def moved_data(component: Component, data: str) -> Component:
    """The table `data` of a config whose items now lie elsewhere. A folder stays what it was taken
    for; anything else is taken for what it looks like."""
    values = {key: value for key, value in component.values.items() if key != "root"}
    was_folder = "root" in component.values and component.name not in _FILES
    if was_folder and Path(data).is_dir():
        return Component(**{"name": component.name, "root": data} | values)
    table = data_table(data)
    return Component(**table | (values if table["name"] == component.name else {}))


def place(component: Component, run: Path) -> list[str]:
    """Where the data lie, in full and seen from the run's folder: it may be opened from anywhere,
    and both may have been moved together."""
    root = component.values.get("root")
    if not isinstance(root, str):
        return []
    if uris.is_uri(root) or root.startswith(HUB):
        return [root]
    whole = os.path.abspath(root)
    return [whole, os.path.relpath(whole, run)]


def data_from_here(component: Component, place: Sequence[str], run: Path) -> Component:
    """The table `data` of a stored run, seen from the folder one is in."""
    for known in place:
        root = known if uris.is_uri(known) else str(run / known)  # or absolute, as it is
        if uris.is_uri(root) or Path(root).exists():
            return component.model_copy(update={"root": root})
    return component


def data_name(place: Place) -> str:
    """The data set a file, a folder or an address holds: features, a table, a packed copy, files of
    images, a known benchmark, class folders."""
    for name in registry.names("data"):
        kind = registry.find("data", name)
        if isinstance(place, str) and not getattr(kind, "at_uris", False):
            continue
        recognises = getattr(kind, "recognises", None)
        if recognises is not None and recognises(place):
            return name
    return "folder"


def as_it_is(component: Component) -> Component:
    """The same data, to be looked at: a benchmark also where images are missing."""
    takes = {p.name for p in registry.parameters(registry.find("data", component.name))}
    if INCOMPLETE not in takes:
        return component
    return Component(**{"name": component.name} | component.values | {INCOMPLETE: True})


def data_reasons(component: Component) -> list[Reason]:
    """Why class folders of a benchmark are not taken for it: its split would not be theirs."""
    root = Path(str(component.values.get("root", "")))
    for name in registry.names("data") if component.name == "folder" and root.is_dir() else ():
        known = registry.find("data", name)
        if hasattr(known, "class_folders_of_it"):  # a benchmark
            number, needed = known.class_folders_of_it(root), known.expected.classes
            if 0 < number < needed:
                why = f"{number} class folders, {known.title} has {needed}"
                return [Reason("data.name", "folder", why)]
    return []

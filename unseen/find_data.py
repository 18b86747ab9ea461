"""Data by a user's word: what a name, a file or a folder stands for, and the data set itself."""

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen import addresses, catalogue, outside
from unseen import data as data_sets
from unseen.addresses import Place
from unseen.config_tables import Part
from unseen.contracts import Dataset, Progress
from unseen.data.base import HUB, INCOMPLETE
from unseen.data.folder import layout
from unseen.names import advice, near_path

_FILES = ("arrays", "coco", "hugging_face", "packed", "parquet", "table", "webdataset")
_NO_PATH = ":*{"  # hf:name, s3://bucket/photos, shards-*.tar, shards-{0..9}.tar


def open_data(part: Part, progress: Progress | None = None, strict: bool = False) -> Dataset:
    """The data set a config names; `strict`: a file that cannot be read is an error."""
    wanted = {p.name: p.default for p in catalogue.parameters(catalogue.find("data", part.name))}
    if wanted.get("root") is inspect.Parameter.empty and "root" not in part.values:
        raise ValueError(f"{part.name} must be told where: data.root=PATH, or `unseen train PATH`")
    made = catalogue.create(
        "data",
        part.name,
        part.values,
        progress=progress,
        strict=strict,
        open_root=lambda root: open_data(Part(**data_table(root)), progress, strict),
    )
    return made if isinstance(made, Dataset) else data_sets.as_dataset(made, progress)


def data_table(data: str, given: Any = None) -> dict[str, Any]:
    """The data part of a config from a user's word: a built-in set by its name, anything else by
    what it looks like; several with commas between are domains; `given` values stay."""
    names = catalogue.names("data")
    table = dict(given) if isinstance(given, dict) else {}
    if "," in data and not Path(data).exists() and not any(mark in data for mark in _NO_PATH):
        return table | domains_table(data.split(","))
    is_named = data in names and not Path(data).is_dir()
    if is_named or outside.is_reference(data):
        return table | {"name": data}
    is_path = not any(mark in data for mark in _NO_PATH)
    if "/" not in data and is_path and not Path(data).exists():
        near_one = near_path(data)
        missing = f"no such file or folder: {data}{near_one}"
        if not near_one and not Path(data).suffix:  # rather a name
            near = advice(data, [name for name in names if name != "folder"])
            missing += f", and no data set of that name: {near}"
        raise FileNotFoundError(missing)
    place = addresses.as_place(data)
    found = {"name": data_name(place), "root": data}
    if found["name"] == "folder" and (isinstance(place, str) or place.is_dir()):
        return layout(place) | table | found
    return table | found


def domains_table(roots: Sequence[str]) -> dict[str, Any]:
    """The data part of several data sets; paths in full: a run may be opened from anywhere."""
    for root in roots:
        data_table(root)  # what is not there is said at once
    whole = [os.path.abspath(root) if Path(root).exists() else root for root in roots]
    return {"name": "domains", "roots": whole}


def moved_data(part: Part, data: str) -> Part:
    """The data part of a config whose items now lie elsewhere. A folder stays what it was taken
    for; anything else is taken for what it looks like."""
    given = {key: value for key, value in part.values.items() if key != "root"}
    was_folder = "root" in part.values and part.name not in _FILES
    if was_folder and Path(data).is_dir():
        return Part(**{"name": part.name, "root": data} | given)
    table = data_table(data)
    return Part(**table | (given if table["name"] == part.name else {}))


def place(part: Part, run: Path) -> list[str]:
    """Where the data lie, in full and seen from the run's folder: it may be opened from anywhere,
    and both may have been moved together."""
    root = part.values.get("root")
    if not isinstance(root, str):
        return []
    if addresses.is_address(root) or root.startswith(HUB):
        return [root]
    whole = os.path.abspath(root)
    return [whole, os.path.relpath(whole, run)]


def found_again(part: Part, place: Sequence[str], run: Path) -> Part:
    """The data part of a stored run, seen from the folder one is in."""
    for known in place:
        root = known if addresses.is_address(known) else str(run / known)  # or absolute, as it is
        if addresses.is_address(root) or Path(root).exists():
            return part.model_copy(update={"root": root})
    return part


def data_name(place: Place) -> str:
    """The data set a file, a folder or an address holds: features, a table, a packed copy, files of
    pictures, a known benchmark, class folders."""
    for name in catalogue.names("data"):
        kind = catalogue.find("data", name)
        if isinstance(place, str) and not getattr(kind, "at_addresses", False):
            continue
        recognises = getattr(kind, "recognises", None)
        if recognises is not None and recognises(place):
            return name
    return "folder"


def as_it_is(part: Part) -> Part:
    """The same data, to be looked at: a benchmark also where pictures are missing."""
    takes = {p.name for p in catalogue.parameters(catalogue.find("data", part.name))}
    if INCOMPLETE not in takes:
        return part
    return Part(**{"name": part.name} | part.values | {INCOMPLETE: True})


def data_reasons(part: Part) -> list[str]:
    """Why class folders of a benchmark are not taken for it: its split would not be theirs."""
    root = Path(str(part.values.get("root", "")))
    for name in catalogue.names("data") if part.name == "folder" and root.is_dir() else ():
        known = catalogue.find("data", name)
        if hasattr(known, "class_folders_of_it"):  # a benchmark
            number, needed = known.class_folders_of_it(root), known.expected.classes
            if 0 < number < needed:
                return [f"data.name = folder: {number} class folders, {known.title} has {needed}"]
    return []

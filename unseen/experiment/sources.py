"""Where a run's parts from outside came from: kept in its manifest, compared when it goes on."""

from collections.abc import Iterator
from typing import Any

from unseen import catalogue, outside
from unseen.config import SettledConfig
from unseen.training.run_folder import RunFolder


def sources_of(config: SettledConfig) -> dict[str, dict[str, str]]:
    """Name -> module, file and hash of the source, of every part that is not ours. Data given as an
    object are known by their items instead."""
    found = {}
    for name, part in _parts(config):
        origin = outside.origin_of(part)
        if origin is not None:
            found[name] = origin.to_dict()
    return found


def refuse_other_sources(folder: RunFolder, config: SettledConfig) -> None:
    """Stops a run that would go on with code it did not begin with."""
    before: dict[str, dict[str, str]] = folder.manifest().parts or {}
    for name, now in sources_of(config).items():
        then = before.get(name)
        if then is None or then["sha256"] != now["sha256"]:
            place = now["file"] or now["qualified"]
            raise ValueError(
                f"the source of {outside.short_name(name)} ({place}) is not the one {folder.path} "
                "began with: put it back, or start a new run with another --out"
            )


def _parts(config: SettledConfig) -> Iterator[tuple[str, Any]]:
    """Every part of a config that may come from outside, by its name."""
    named = [("losses", config.loss.name), ("samplers", config.sampler.name)]
    named += [("protocols", config.protocol), ("data", config.data.name)]
    named += [("miners", config.miner.name)] if config.miner is not None else []
    named += [("regularizers", part.name) for part in config.regularizers]
    named += [("metrics", outside.without_value(name)) for name in config.metrics]
    for kind, name in named:
        if not (kind == "data" and outside.is_object(name)) and not name.startswith("pml:"):
            yield name, catalogue.find(kind, name)
    for kind, name in (("networks", config.network), ("backbones", config.backbone)):
        if outside.is_from_outside(name) or name in outside.announced(kind):
            yield name, catalogue.find(kind, name)

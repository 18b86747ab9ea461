"""How many processes divide each batch of a run (`experiment/shares.py` starts them).

Two threads of one process wait for each other in every layer, two processes once a step: where
layers are trained on pictures that are not small, two processes use two cores better. They must
find the data and parts by name, and batch norm must not follow the batches, of which each would see
its share only.
"""

from typing import Any

import torch

from unseen import outside
from unseen.config import Config, SettledConfig
from unseen.networks.taps import POOLED
from unseen.rungs import rung_config
from unseen.training import processes

SMALL = 64  # up to this many pixels the steps are too short to share
USUAL = 2


def with_shares(
    config: Config, settled: SettledConfig, reasons: list[str]
) -> tuple[SettledConfig, list[str]]:
    """The settled config with its number of processes, and threads for each; the reasons with
    those of what has changed."""
    cores, shares = torch.get_num_threads(), settled.shares
    has_objects = outside.has_objects(config.model_dump())
    if config.shares == "auto" and config.threads == "auto" and cores > 1:
        alone = has_objects or processes.are_started() or not _gains(settled)
        shares = 1 if alone else USUAL
    if shares == 1:
        return settled, reasons
    if has_objects:
        raise ValueError(
            f"shares={shares} starts processes that cannot see the objects of this one: name the "
            "parts and the data instead, or leave shares out"
        )
    usual: dict[str, Any] = {"shares": shares, "threads": max(1, cores // shares), "workers": 1}
    changed = {key: value for key, value in usual.items() if getattr(config, key) == "auto"}
    why = {"shares": "processes divide each batch", "threads": "in each", "workers": "in each"}
    told = [reason for reason in reasons if reason.partition(" = ")[0] not in changed]
    told += [f"{key} = {value}: {why[key]}" for key, value in changed.items()]
    return settled.model_copy(update=changed), told


def _gains(settled: SettledConfig) -> bool:
    """Whether some training of the run goes through layers, and can be divided."""
    rungs = [settled, *(rung_config(settled, rung.name) for rung in settled.ladder)]
    deep = [rung for rung in rungs if rung.freeze_until != POOLED]
    can = settled.device == "cpu" and not settled.manifold_mixup
    return (
        bool(deep)
        and can
        and all(rung.frozen_bn != "off" and (rung.picture_size or 0) > SMALL for rung in deep)
    )

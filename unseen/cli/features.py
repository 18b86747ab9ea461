"""`unseen features`: any data set through a backbone, once."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from unseen import config as configs
from unseen import find_data
from unseen.cli.allocator import keep_freed_memory
from unseen.cli.engine import Address, EngineOption, EngineWorkers, chosen_engine
from unseen.cli.terminal import console, display
from unseen.config_toml import NOTHING
from unseen.experiment.features import write_features
from unseen.find_data import data_table
from unseen.networks.pooling import POOLINGS
from unseen.settle import settle


def features(
    data: Annotated[str, typer.Argument(help="what `unseen train` takes: a folder, a table, ...")],
    out: Annotated[Path, typer.Option(help="the .npz file to write")],
    backbone: Annotated[str, typer.Option(help="e.g. efficientnet_lite0, timm:resnet18")] = "auto",
    weights: Annotated[str, typer.Option(help="imagenet, none, or a file")] = "auto",
    pooling: Annotated[str, typer.Option(help=f"own, {', '.join(POOLINGS)}")] = "own",
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value, e.g. picture_size=224 data.split=none")
    ] = None,
    engine: EngineOption = "local",
    address: Address = None,
    workers: EngineWorkers = None,
) -> None:
    """Example: unseen features photos/ --backbone resnet50 --out photos.npz

    Then `unseen train photos.npz` trains a head on them, in seconds. The same command again goes on
    where it was stopped. Official splits, queries, groups and further labels go with the features.
    `--engine ray` computes on the workers of a cluster.
    """
    if out.suffix.lower() != ".npz":
        raise ValueError(f"--out must end in .npz, got {out}")
    chosen: dict[str, Any] = {"backbone": backbone, "pooling": pooling}
    chosen |= {"weights": None if weights == NOTHING else weights}
    values = {"data": data_table(data)} | chosen
    asked = configs.make(configs.override(values, settings or []))
    keep_freed_memory()
    with display() as (_, watch):
        dataset = find_data.open_data(asked.data, watch.of("reading the data"), asked.strict)
        config, _reasons = settle(asked, dataset)
        torch.set_num_threads(config.threads)
        who = chosen_engine(engine, address, workers, config.device)
        size = write_features(config, dataset, out, watch.of("computing features"), who)
    console.print(
        f"{len(dataset):,} items, {size:,} features of {config.backbone} "
        f"({'with' if config.weights else 'without'} pretrained weights): {out}. "
        f"Next: unseen train {shlex.quote(str(out))}",
    )

"""`unseen data features`: any data set through a backbone, once."""

import shlex
from typing import Any

import torch

from unseen.cli.allocator import keep_freed_memory
from unseen.cli.engine import RayCluster, RayWorkers, chosen_engine
from unseen.cli.options import Data, OutFile, Settings
from unseen.cli.terminal import console, display
from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.config.resolve import resolve
from unseen.core.names import few
from unseen.models.backbone import OWN
from unseen.runs.extract_features import write_features


def features(
    data: Data,
    out: OutFile,
    settings: Settings = None,
    ray: RayCluster = None,
    workers: RayWorkers = None,
) -> None:
    """Example: unseen data features photos/ backbone=resnet50 --out photos.npz

    Then `unseen train photos.npz` trains a head on them, in seconds. The same command again goes on
    where it was stopped. Official splits, queries, groups and further labels go with the features.
    `--ray start` computes on the workers of a cluster.
    """
    if out.suffix.lower() != ".npz":
        raise ValueError(f"--out must end in .npz, got {out}")
    values: dict[str, Any] = {"data": data_table(data), "pooling": OWN}
    request = configs.make(configs.override(values, settings or []))
    keep_freed_memory()
    with display() as (_, callbacks):
        dataset = find_data.open_data(
            request.data, callbacks.of("reading the data"), request.data.strict
        )
        config, _reasons = resolve(request, dataset)
        torch.set_num_threads(config.training.machine.threads)
        who = chosen_engine(ray, workers, config.training.machine.device)
        size = write_features(config, dataset, out, callbacks.of("computing features"), who)
    for note in dataset.describe().get("notes", []):
        console.print(f"  {note}", style="yellow")
    console.print(
        f"{len(dataset):,} items of {len(dataset.label_names):,} classes "
        f"({few(map(str, dataset.label_names))}), {size:,} features of {config.model.backbone} "
        f"({'with' if config.model.weights else 'without'} pretrained weights): {out}. "
        f"Next: unseen train {shlex.quote(str(out))}",
    )

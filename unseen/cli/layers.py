"""`unseen layers`: what a network computes on the way, by name."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Column, Table

from unseen import assemble
from unseen.cli.terminal import console
from unseen.experiment.run_context import stored_config
from unseen.names import near_path
from unseen.networks.backbone import create_backbone
from unseen.networks.descriptor import layers_of, usual_taps
from unseen.networks.head import Head
from unseen.networks.network import EmbeddingNetwork, LayeredNetwork
from unseen.networks.taps import EMBEDDING
from unseen.training.run_folder import RunFolder


def layers(
    target: Annotated[str, typer.Argument(help="a run's folder, or a backbone such as resnet50")],
    every: Annotated[bool, typer.Option("--all", help="every module, not only the steps")] = False,
) -> None:
    """Example: unseen layers efficientnet_lite0

    Names the layers of a run's network (or of a backbone), what each gives for one picture, and the
    size of its descriptor: names for `descriptor=<layer>` and `freeze_until=<layer>`. The last
    column is what freezing up to that layer keeps on disk, per picture and view.
    """
    network = _network(target)
    size = network.backbone.input_spec.size
    blank = torch.zeros(2, 3, size, size)
    found = layers_of(network, blank)
    shown = list(found) if every else usual_taps(network, blank)
    sizes = (Column(name, justify="right") for name in ("descriptor", "kept"))
    table = Table("layer", "gives", *sizes)
    for name in shown:
        layer = found[name]
        shape = " x ".join(str(length) for length in layer.shape)
        is_head = name == EMBEDDING or name.startswith(("head.", "trunk."))
        kept = "" if is_head else f"{2 * torch.Size(layer.shape).numel() / 1e3:,.1f} kB"
        table.add_row(name, shape, f"{layer.size:,}", kept)
    console.print(f"{target}, pictures of {size} x {size}")
    console.print(table)


def _network(target: str) -> LayeredNetwork:
    folder = RunFolder(Path(target))
    if folder.is_started:
        config = stored_config(folder)
        if config.picture_size is None:
            raise ValueError(f"{target} was trained on features: its only layers are the head's")
        return assemble.network(config.model_copy(update={"weights": None}))
    if Path(target).exists() or "/" in target.partition(":")[0]:
        raise ValueError(f"{target} is not a run: it has no config.toml{near_path(target)}")
    backbone = create_backbone(target)
    return EmbeddingNetwork(backbone, Head(backbone.num_features, 128))

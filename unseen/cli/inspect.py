"""`unseen inspect`: layers, diagnosis, the similarity of two images, post-processing, a broken
step."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Column, Table

from unseen.cli.options import Html, MovedData, RunPath, Size, group
from unseen.cli.refine import refine
from unseen.cli.terminal import console, display
from unseen.config import build
from unseen.core import registry
from unseen.core.names import near_path
from unseen.models.backbone import create_backbone
from unseen.models.descriptor import layers_of, usual_layers
from unseen.models.head import Head
from unseen.models.layer_outputs import EMBEDDING
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.reports import why_alike
from unseen.reports.diagnosis import printed
from unseen.runs import replay as replays
from unseen.runs.diagnose_run import diagnose as diagnosis_of
from unseen.runs.explain import explain as explanation_of
from unseen.runs.prepare import reopen, stored_config
from unseen.runs.trained_run import Trained
from unseen.training.run_folder import RunFolder

PARAMETERS = 12  # of a broken step, named one by one

app = group(
    "Example: unseen inspect diagnose runs/birds\n\n"
    "What a run learned: its layers, its embedding space, why two images are alike."
)
app.command("refine")(refine)


@app.command()
def layers(
    target: Annotated[str, typer.Argument(help="a run's folder, or a backbone such as resnet50")],
    every: Annotated[bool, typer.Option("--all", help="every module, not only the steps")] = False,
) -> None:
    """Example: unseen inspect layers efficientnet_lite0

    Names the layers of a run's network (or of a backbone), what each gives for one image, and the
    size of its descriptor: names for `descriptor=<layer>` and `freeze_until=<layer>`. The last
    column is what freezing up to that layer keeps on disk, per image and view.
    """
    network = _network(target)
    size = network.backbone.input_spec.size
    blank = torch.zeros(2, 3, size, size)
    result = layers_of(network, blank)
    sizes = (Column(name, justify="right") for name in ("descriptor", "kept"))
    table = Table("layer", "gives", *sizes)
    for name in list(result) if every else usual_layers(network, blank):
        layer = result[name]
        shape = " x ".join(str(length) for length in layer.shape)
        is_head = name == EMBEDDING or name.startswith(("head.", "trunk."))
        on_disk = "" if is_head else f"{2 * torch.Size(layer.shape).numel() / 1e3:,.1f} kB"
        table.add_row(name, shape, f"{layer.size:,}", on_disk)
    console.print(f"{target}, images of {size} x {size}")
    console.print(table)


def _network(target: str) -> LayeredNetwork:
    folder = RunFolder(Path(target))
    if folder.is_started:
        config = stored_config(folder)
        if config.data.image_size is None:
            raise ValueError(f"{target} was trained on features: its only layers are the head's")
        return build.network(config.with_values({"weights": None}))
    if Path(target).exists() or "/" in target.partition(":")[0]:
        raise ValueError(f"{target} is not a run: it has no config.toml{near_path(target)}")
    backbone = create_backbone(target)
    return EmbeddingNetwork(backbone, Head(backbone.num_features, 128))


@app.command()
def diagnose(
    run: RunPath,
    robustness: Annotated[
        bool, typer.Option(help="also recall with some of each image's local features")
    ] = False,
    also: Annotated[
        list[str] | None,
        typer.Option(help="another diagnostic: its name, or ./mine.py:Mine; repeatable"),
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen inspect diagnose runs/glyphs-multi_similarity-seed0

    Measures training and unseen classes (collapse, spectrum, hubness, the gap between seen and
    unseen, a better layer, suspected wrong labels) and names the likely remedy. The report shows
    it too, with the label issues' images: unseen report RUN.
    """
    for name in also or ():
        registry.check("diagnostics", name, {})
    with display() as (_, callbacks):
        context, folder = reopen(run, callbacks, data)
        diagnosis = diagnosis_of(
            context, folder, callbacks, with_robustness=robustness, also=also or ()
        )
    console.print(printed(diagnosis, context.dataset))


@app.command()
def explain(
    run: RunPath,
    first: Annotated[Path, typer.Argument(help="an image")],
    second: Annotated[Path, typer.Argument(help="another image")],
    html: Html = None,
    size: Size = None,
) -> None:
    """Example: unseen inspect explain runs/birds query.jpg answer.jpg

    Takes the similarity of two images apart: a heat map on each says which places pull them
    together or push them apart, lines join the pairs of places that pull most. Exact for pooled
    maps with a linear head, by gradient for others; the answer says which.
    """
    for image in (first, second):
        if not image.exists():
            raise FileNotFoundError(f"no such file: {image}{near_path(image)}")
    why = explanation_of(Trained.open(run).at(size), first, second)
    for sentence in why.sentences:
        console.print(sentence)
    for number, pair in enumerate(why.strongest(why_alike.PAIRS), start=1):
        places = (divmod(pair.first, why.grids[0][1]), divmod(pair.second, why.grids[1][1]))
        one, two = (f"row {row + 1} column {column + 1}" for row, column in places)
        console.print(f"{number}. {one} and {two}: {pair.amount:+.4f}")
    if html is not None:
        why_alike.write(html, why, (first.name, second.name))
        console.print(f"page: {html}")


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="broken_step.pt in the folder of a run")],
) -> None:
    """Example: unseen inspect replay runs/glyphs-margin-seed0/broken_step.pt

    Repeats the step at which a run stopped because its loss or gradient was not finite, and names
    the first layer where that happens. The file holds all that is needed: batch, weights, settings.
    """
    result = replays.replay(file)
    console.print(f"step {result.step}: {result.why or 'it does not break here'}")
    console.print("terms: " + "  ".join(f"{k} {v:.6g}" for k, v in result.terms.items()))
    if result.layer is not None:
        console.print(f"first that is not finite: {result.layer}")
    if result.parameters:
        more = len(result.parameters) - PARAMETERS
        others = f" and {more} more" if more > 0 else ""
        console.print(f"gradients not finite: {', '.join(result.parameters[:PARAMETERS])}{others}")
    console.print(f"images: {', '.join(map(str, result.indices))}")

"""`unseen backbones`: which network's frozen features suit these images."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli import race_page
from unseen.cli.allocator import keep_freed_memory
from unseen.cli.options import AsJson, Data, OutFolder
from unseen.cli.terminal import console, display
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.core import custom_components
from unseen.models.candidates import from_words, recommended
from unseen.runs.backbone_race import race
from unseen.training.json_files import spelled


def backbones(
    data: Data,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="NAME or NAME=FILE, more candidates; key=value, settings of `train`"),
    ] = None,
    download: Annotated[bool, typer.Option(help="also the recommended ones, from the hub")] = False,
    out: OutFolder = Path("race"),
    as_json: AsJson = False,
) -> None:
    """Example: unseen backbones photos/ resnet50=resnet50.pth

    Compares frozen features of all networks whose weights are installed, cached or named on
    classes of the training half, by recall@1 and speed: first on few images, then the best ones on
    more. Test classes are not read. Of those without a significant difference it chooses the
    fastest. Writes a table, a figure and a page.
    """
    named, settings = from_words(words or [])
    custom_components.trust([each.backbone for each in named])
    values = configs.override({"data": data_table(data)}, settings)
    if download and not as_json:
        licences = [f"{each.backbone} ({each.licence})" for each in recommended()]
        console.print(f"recommended, with their licences: {', '.join(licences)}")
    keep_freed_memory()
    with display() as (_, callbacks):
        result = race(values, named, download=download, callbacks=callbacks)
    page = race_page.write(result, out)
    if as_json:
        print(json.dumps(spelled(result), indent=2))
        return
    console.print(race_page.race_table(result).terminal())
    chosen = " ".join(f"{key}={shlex.quote(value)}" for key, value in result.settings.items())
    console.print(f"chosen: {result.choice.title}: {result.why}. {result.seconds:.0f} s: {page}")
    console.print(f"Next: unseen train {shlex.quote(data)} {chosen}")
